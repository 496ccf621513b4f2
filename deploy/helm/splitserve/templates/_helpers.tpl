{{- define "splitserve.name" -}}
{{- $name := .Values.nameOverride | default .Release.Name | trunc 40 | trimSuffix "-" }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
{{- fail (printf "%q is no name of a Service: letters, digits and dashes, a letter first; give nameOverride one" $name) }}
{{- end }}
{{- $name -}}
{{- end }}

{{- /* Labels by which services and policies find pods: (root, component). */ -}}
{{- define "splitserve.selector" -}}
app.kubernetes.io/name: splitserve
app.kubernetes.io/instance: {{ include "splitserve.name" .root }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- define "splitserve.labels" -}}
{{ include "splitserve.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* (registry, image, tag): by digest where there is one. */ -}}
{{- define "splitserve.image" -}}
{{- with .registry }}{{ . }}/{{ end -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .tag }}
{{- end -}}
{{- end }}

{{- /* Options as variables: maxNumSeqs: 64 is SPLITSERVE_MAX_NUM_SEQS=64. */ -}}
{{- define "splitserve.options" -}}
{{- range $name, $value := . }}
{{- if not (kindIs "invalid" $value) }}
- name: SPLITSERVE_{{ $name | snakecase | upper }}
  value: {{ if kindIs "float64" $value }}{{ if eq $value (floor $value) }}{{ $value | int64 | quote }}{{ else }}{{ $value | quote }}{{ end }}{{ else }}{{ $value | quote }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What every process of the fleet is told. */ -}}
{{- define "splitserve.fleetEnv" -}}
{{ include "splitserve.homeEnv" . }}
- name: HOME
  value: /tmp
- name: SPLITSERVE_MODEL
  value: {{ .Values.model.name | quote }}
{{- include "splitserve.options" .Values.model.options }}
- name: SPLITSERVE_JOIN_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ include "splitserve.fleetSecret" . }}, key: join-token}
# Is there while the token is changed alone.
- name: SPLITSERVE_JOIN_TOKEN_TOO
  valueFrom:
    secretKeyRef: {name: {{ include "splitserve.fleetSecret" . }}, key: join-token-too, optional: true}
{{- if include "splitserve.fleetTls" . }}
- name: SPLITSERVE_FLEET_TLS
  value: /etc/splitserve/fleet
{{- end }}
{{- include "splitserve.hubEnv" . }}
{{- end }}

{{- define "splitserve.hubEnv" }}
{{- with .Values.model.authSecret.name }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ . }}, key: {{ $.Values.model.authSecret.key }}}
{{- end }}
{{- end }}

{{- /* A quantity such as 20Gi, in bytes. */ -}}
{{- define "splitserve.bytes" -}}
{{- $units := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "m" 0.001 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 }}
{{- $unit := "" }}{{ $number := . }}
{{- if kindIs "string" . }}{{ $unit = regexFind "[a-zA-Z]*$" . }}{{ $number = trimSuffix $unit . }}{{ end }}
{{- if not (hasKey $units $unit) }}{{ fail (printf "%q is no size; write one such as 16Gi" .) }}{{ end }}
{{- mulf (float64 $number) (get $units $unit) | int64 }}
{{- end }}

{{- /* Whether a pod keeps the model in a folder of its own. */ -}}
{{- define "splitserve.ownCache" -}}
{{- if not (or .Values.model.cache.claim .Values.model.cache.image) }}yes{{ end }}
{{- end }}

{{- /* Where a process keeps what it fetches, and beyond which size its pod is ended. */ -}}
{{- define "splitserve.homeEnv" -}}
- name: SPLITSERVE_HOME
  value: /var/cache/splitserve
{{- if include "splitserve.ownCache" . }}
- name: SPLITSERVE_HOME_LIMIT_BYTES
  value: {{ include "splitserve.bytes" .Values.model.cache.size | quote }}
{{- end }}
{{- end }}

{{- define "splitserve.volumes" -}}
- name: tmp
  emptyDir: {}
{{- if include "splitserve.readOnlyCache" . }}
- name: cache
  emptyDir: {sizeLimit: 2Gi}
- name: models
  {{- with .Values.model.cache.image }}
  image: {reference: {{ . | quote }}, pullPolicy: {{ $.Values.image.pullPolicy }}}
  {{- else }}
  persistentVolumeClaim: {claimName: {{ .Values.model.cache.claim }}, readOnly: true}
  {{- end }}
{{- else }}
- name: cache
{{- if .Values.model.cache.claim }}
  persistentVolumeClaim: {claimName: {{ .Values.model.cache.claim }}}
{{- else }}
  emptyDir: {sizeLimit: {{ .Values.model.cache.size }}}
{{- end }}
{{- end }}
{{- with include "splitserve.fleetTlsVolume" . | trim }}
{{ . }}
{{- end }}
{{- end }}

{{- define "splitserve.fleetTlsVolume" -}}
{{- if include "splitserve.fleetTls" . -}}
- name: fleet-tls
  secret:
    secretName: {{ include "splitserve.fleetTls" . }}
    defaultMode: 0440
    items:
      - {key: tls.crt, path: cert.pem}
      - {key: tls.key, path: key.pem}
      - {key: ca.crt, path: ca.pem}
{{- end }}
{{- end }}

{{- /* The token of a pod that asks the API server something, and the authority that it knows it by. */ -}}
{{- define "splitserve.accountVolume" -}}
- name: account
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}

{{- define "splitserve.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: cache, mountPath: /var/cache/splitserve}
{{- if include "splitserve.readOnlyCache" . }}
- {name: models, mountPath: /var/cache/splitserve/models{{ if not .Values.model.cache.image }}, subPath: models{{ end }}, readOnly: true}
{{- end }}
{{- if include "splitserve.fleetTls" . }}
- {name: fleet-tls, mountPath: /etc/splitserve/fleet, readOnly: true}
{{- end }}
{{- end }}

{{- /* Whether the model is in the claim before anybody starts. */ -}}
{{- define "splitserve.readOnlyCache" -}}
{{- with .Values.model.cache }}{{ if or .readOnly .warmUp .image }}yes{{ end }}{{ end }}
{{- end }}

{{- define "splitserve.fleetSecret" -}}
{{ .Values.fleet.existingSecret | default (printf "%s-fleet" (include "splitserve.name" .)) }}
{{- end }}

{{- define "splitserve.keysSecret" -}}
{{ .Values.apiKeys.existingSecret | default (printf "%s-api-keys" (include "splitserve.name" .)) }}
{{- end }}

{{- /* Whether the router reads API keys from a file. */ -}}
{{- define "splitserve.keysFile" -}}
{{- if and .Values.apiKeys.enabled (not .Values.apiKeys.inStore) }}yes{{ end }}
{{- end }}

{{- /* Until the slowest pool is given up, and something more. */ -}}
{{- define "splitserve.startupSeconds" -}}
{{- $minutes := int .Values.worker.startupMinutes }}
{{- range .Values.pools }}{{ if . }}{{ $minutes = max $minutes (int (.startupMinutes | default 0)) }}{{ end }}{{ end }}
{{- add 120 (mul 60 $minutes) }}
{{- end }}

{{- /* A pool: how long its pods may take to have a node and their image, which for GPUs has gigabytes. */ -}}
{{- define "splitserve.imageMinutes" -}}
{{- if kindIs "invalid" .imageMinutes }}{{ ternary 30 5 (gt (int .gpus.count) 0) }}{{ else }}{{ int .imageMinutes }}{{ end }}
{{- end }}

{{- /* Until the slowest pool has to be there, from its image on, and something more. */ -}}
{{- define "splitserve.rolloutSeconds" -}}
{{- $root := . }}{{ $most := int (include "splitserve.startupSeconds" .) }}
{{- range .Values.pools }}{{ if . }}
{{- $pool := include "splitserve.pool" (dict "root" $root "pool" .) | fromJson }}
{{- $most = max $most (add 120 (mul 60 (add (int $pool.startupMinutes) (int (include "splitserve.imageMinutes" $pool))))) }}
{{- end }}{{ end }}
{{- $most }}
{{- end }}

{{- /* The secret with the fleet's certificates; empty: none are shown. */ -}}
{{- define "splitserve.fleetTls" -}}
{{- with .Values.fleet.tls.secret }}{{ . }}{{ else }}
{{- if .Values.fleet.tls.issuer.name }}{{ include "splitserve.name" . }}-fleet-tls{{ end }}
{{- end }}
{{- end }}

{{- /* The same for clients. */ -}}
{{- define "splitserve.clientsTls" -}}
{{- with .Values.tls.secret }}{{ . }}{{ else }}
{{- if .Values.tls.issuer.name }}{{ include "splitserve.name" . }}-tls{{ end }}
{{- end }}
{{- end }}

{{- define "splitserve.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "splitserve.name" .) }}
{{- end }}

{{- /* The router's, which alone may have a right: to look at vLLM's pods. */ -}}
{{- define "splitserve.routerAccount" -}}
{{- if and .Values.router.vllmPods.selector (not .Values.serviceAccount.name) }}{{ include "splitserve.name" . }}-router
{{- else }}{{ include "splitserve.serviceAccount" . }}{{ end }}
{{- end }}

{{- /* Nobody is root, nothing is written but volumes. */ -}}
{{- define "splitserve.podSecurity" -}}
runAsNonRoot: true
{{- range $key, $id := .Values.podSecurity }}
{{- if not (kindIs "invalid" $id) }}
{{ $key }}: {{ int64 $id }}
{{- end }}
{{- end }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "splitserve.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- with .add }}
  add: {{ toJson . }}
{{- end }}
{{- end }}

{{- /* (pod, root): where it runs. */ -}}
{{- define "splitserve.placement" -}}
{{- $nodes := .pod.nodeSelector | default dict }}
{{- with .root.Values.image.arch }}{{ $nodes = merge (dict) $nodes (dict "kubernetes.io/arch" .) }}{{ end }}
{{- with $nodes }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .pod.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- with .pod.topologySpreadConstraints }}
topologySpreadConstraints: {{ toJson . }}
{{- end }}
{{- with .pod.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- end }}

{{- /* (root, component): of pods that run once. */ -}}
{{- define "splitserve.jobLabels" -}}
{{- include "splitserve.labels" . }}
{{- with .root.Values.jobs.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Where pods go that run once, on the router's image. */ -}}
{{- define "splitserve.besideRouters" -}}
{{- $pod := pick .Values.router "nodeSelector" "tolerations" "priorityClassName" }}
{{- include "splitserve.placement" (dict "root" . "pod" $pod "affinity" dict) }}
{{- end }}

{{- /* A router or a pool: what its pod asks its node for, in words. */ -}}
{{- define "splitserve.asked" -}}
{{- $asked := dict }}{{ with .resources }}{{ with .requests }}{{ $asked = . }}{{ end }}{{ end }}
{{- $asked.cpu | default "no" }} CPU and {{ with $asked.memory }}{{ . }} of memory{{ else }}no memory{{ end }}
{{- end }}

{{- /* Whether any pool's ranks span hosts of its own. */ -}}
{{- define "splitserve.hasGroups" -}}
{{- $root := . }}
{{- range .Values.pools }}{{ if . }}
{{- if gt (int (include "splitserve.pool" (dict "root" $root "pool" .) | fromJson).hosts) 1 }}yes{{ end }}
{{- end }}{{ end }}
{{- end }}

{{- /* A pool with the workers' defaults below its own keys. */ -}}
{{- define "splitserve.pool" -}}
{{ mergeOverwrite (deepCopy .root.Values.worker) (deepCopy .pool) | toJson }}
{{- end }}
