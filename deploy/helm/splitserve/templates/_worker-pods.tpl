{{- /* (root, poolName, pool, place, isGpu): a worker, with its ranks or with those of its group. */ -}}
{{- define "splitserve.workerPod" -}}
{{- $root := .root }}{{ $pool := .pool }}
metadata:
  {{- include "splitserve.workerMetadata" (merge (dict "component" (printf "%s-worker" .pool.role)) .) | trim | nindent 2 }}
spec:
  {{- include "splitserve.workerSpec" (merge (dict "graceS" 30) .) | trim | nindent 2 }}
  containers:
    - name: worker
      {{- include "splitserve.workerImage" . | trim | nindent 6 }}
      {{- if .place.cluster }}
      # A node of the Ray cluster, and on it the worker, who asks Ray for its ranks.
      command:
        - bash
        - -c
        - >-
          ray start --address={{ .place.cluster }} --node-ip-address=$SPLITSERVE_ADVERTISE_HOST
          {{- include "splitserve.rayRoom" . | trim | nindent 10 }}
          && exec splitserve {{ $pool.role }}-worker
      {{- else }}
      args: [{{ $pool.role }}-worker]
      {{- end }}
      env:
        {{- include "splitserve.fleetEnv" $root | nindent 8 }}
        - {name: SPLITSERVE_ROUTER, value: "dns+{{ include "splitserve.name" $root }}-routers:50052"}
        - {name: SPLITSERVE_HOST, value: 0.0.0.0}
        - name: SPLITSERVE_ADVERTISE_HOST
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        - name: SPLITSERVE_WORKER_ID
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        - {name: SPLITSERVE_POOL, value: {{ .poolName | quote }}}
        - {name: SPLITSERVE_PORT, value: "50061"}
        - {name: SPLITSERVE_METRICS_PORT, value: "9400"}
        - {name: SPLITSERVE_KV_EVENTS_PORT, value: "5557"}
        - {name: SPLITSERVE_KV_REPLAY_PORT, value: "5558"}
        {{- if .isGpu }}
        - {name: SPLITSERVE_DEVICE, value: cuda}
        {{- else }}
        - {name: SPLITSERVE_DEVICE, value: cpu}
        {{- end }}
        {{- if or .place.isGroup .place.cluster }}
        - {name: SPLITSERVE_RANK_LAUNCHER, value: ray}
        - {name: SPLITSERVE_RAY_WAIT_S, value: {{ mul 60 (int $pool.startupMinutes) | quote }}}
        {{- if .place.isGroup }}
        - {name: SPLITSERVE_RAY_LISTEN, value: "$(SPLITSERVE_ADVERTISE_HOST):6379"}
        - {name: SPLITSERVE_RAY_HOSTS, value: {{ $pool.hosts | quote }}}
        {{- else }}
        - {name: SPLITSERVE_RAY_ADDRESS, value: {{ .place.cluster | quote }}}
        {{- end }}
        {{- end }}
        {{- with include "splitserve.rayEnv" . | trim }}{{ . | nindent 8 }}{{ end }}
        {{- if not (hasKey (default dict $pool.options) "handOnS") }}
        - {name: SPLITSERVE_HAND_ON_S, value: "20"}
        {{- end }}
        {{- with include "splitserve.numThreads" $pool }}
        - {name: SPLITSERVE_NUM_THREADS, value: {{ . | quote }}}
        {{- end }}
        {{- include "splitserve.options" $pool.options | nindent 8 }}
        {{- with $pool.env }}{{ toYaml . | nindent 8 }}{{ end }}
      ports:
        - {name: grpc, containerPort: 50061}
        - {name: metrics, containerPort: 9400}
        - {name: kv-events, containerPort: 5557}
        - {name: kv-replay, containerPort: 5558}
        {{- if .place.isGroup }}
        - {name: ray, containerPort: 6379}
        {{- end }}
      # The page is there once the model is loaded, warm, and a block has been sent to itself.
      startupProbe:
        httpGet: {path: /live, port: metrics}
        periodSeconds: 5
        failureThreshold: {{ mul 12 (int $pool.startupMinutes) }}
      livenessProbe:
        httpGet: {path: /live, port: metrics}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      readinessProbe:
        httpGet: {path: /ready, port: metrics}
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: 2
      {{- include "splitserve.workerRoom" . | trim | nindent 6 }}
  {{- include "splitserve.workerVolumes" . | trim | nindent 2 }}
{{- end }}

{{- /* The same arguments: a host of a group that has ranks and no worker. Its grace outlasts the leader's drain. */ -}}
{{- define "splitserve.followerPod" -}}
{{- $root := .root }}{{ $pool := .pool }}
metadata:
  {{- include "splitserve.workerMetadata" (merge (dict "component" (printf "%s-ranks" .pool.role)) .) | trim | nindent 2 }}
spec:
  {{- include "splitserve.workerSpec" (merge (dict "graceS" 45) .) | trim | nindent 2 }}
  containers:
    - name: ranks
      {{- include "splitserve.workerImage" . | trim | nindent 6 }}
      command:
        - bash
        - -c
        - |-
          trap 'exit 0' TERM
          until found=$(getent hosts "$LWS_LEADER_ADDRESS") && leader=${found%% *} \
            && (exec 3<>"/dev/tcp/$leader/6379") 2>/dev/null; do sleep 2; done
          echo "$leader" >/tmp/leader
          exec ray start --address="$leader:6379" --node-ip-address="$POD_IP" --node-manager-port=6380 \
            {{- include "splitserve.rayRoom" . | trim | nindent 12 }} --block
      env:
        {{- include "splitserve.homeEnv" $root | nindent 8 }}
        - {name: HOME, value: /tmp}
        - name: POD_IP
          valueFrom: {fieldRef: {fieldPath: status.podIP}}
        {{- with include "splitserve.hubEnv" $root | trim }}{{ . | nindent 8 }}{{ end }}
        {{- with include "splitserve.rayEnv" . | trim }}{{ . | nindent 8 }}{{ end }}
        {{- with $pool.env }}{{ toYaml . | nindent 8 }}{{ end }}
      ports:
        - {name: raylet, containerPort: 6380}
      # Open once it has joined its leader. Whether its ranks work is the leader's to see.
      startupProbe:
        tcpSocket: {port: raylet}
        periodSeconds: 5
        failureThreshold: {{ mul 12 (int $pool.startupMinutes) }}
      livenessProbe:
        tcpSocket: {port: raylet}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      readinessProbe:
        tcpSocket: {port: raylet}
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: 2
      lifecycle:
        # The leader has requests to end, and needs its ranks for that. By now its name may be another's.
        preStop:
          exec:
            command:
              - bash
              - -c
              - read -r leader </tmp/leader; while (exec 3<>"/dev/tcp/$leader/6379") 2>/dev/null; do sleep 1; done
      {{- include "splitserve.workerRoom" . | trim | nindent 6 }}
  {{- include "splitserve.workerVolumes" . | trim | nindent 2 }}
{{- end }}

{{- define "splitserve.workerMetadata" -}}
labels:
  {{- include "splitserve.labels" (dict "root" .root "component" .component) | nindent 2 }}
  splitserve/pool: {{ .poolName }}
  {{- with .pool.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
{{- if or .pool.podAnnotations .pool.rdma.networks }}
annotations:
  {{- with .pool.rdma.networks }}
  k8s.v1.cni.cncf.io/networks: {{ . | quote }}
  {{- end }}
  {{- with .pool.podAnnotations }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}
{{- end }}

{{- define "splitserve.workerImage" -}}
{{- $tag := printf "%s-%s" .root.Chart.AppVersion (ternary "cuda" "cpu" .isGpu) }}
image: {{ include "splitserve.image" (dict "registry" .root.Values.image.registry "image" .root.Values.image.worker "tag" $tag) }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  {{- $add := ternary (list "IPC_LOCK") (list) (and (ne .pool.rdma.resource "") .pool.rdma.ipcLock) }}
  {{- include "splitserve.containerSecurity" (dict "add" $add) | nindent 2 }}
{{- end }}

{{- /* (pool, name): whether its own `env` has a variable. Twice in one list is refused by API servers. */ -}}
{{- define "splitserve.hasEnv" -}}
{{- $name := .name }}{{ range .pool.env }}{{ if eq .name $name }}yes{{ end }}{{ end }}
{{- end }}

{{- /* A pool: threads of a worker, as many as the cores that it asks for: without a limit it would see all of
its node's. Empty where its options, its `env` or a limit say how many. */ -}}
{{- define "splitserve.numThreads" -}}
{{- $resources := default dict .resources }}
{{- $cores := dig "requests" "cpu" "" $resources }}
{{- $isSaid := or (dig "limits" "cpu" "" $resources) (hasKey (default dict .options) "numThreads") (include "splitserve.hasEnv" (dict "pool" . "name" "SPLITSERVE_NUM_THREADS")) }}
{{- if and $cores (not $isSaid) }}
{{- $isMilli := hasSuffix "m" (toString $cores) }}
{{- max 1 (divf (float64 (trimSuffix "m" (toString $cores))) (ternary 1000 1 $isMilli) | ceil | int) }}
{{- end }}
{{- end }}

{{- define "splitserve.workerRoom" -}}
{{- $resources := deepCopy (default dict .pool.resources) }}
{{- $devices := dict }}
{{- if .isGpu }}{{ $_ := set $devices .pool.gpus.resource (int .pool.gpus.count) }}{{ end }}
{{- with .pool.rdma }}{{ if .resource }}{{ $_ := set $devices .resource (int .count) }}{{ end }}{{ end }}
{{- $limits := merge $devices ($resources.limits | default dict) }}
{{- if $limits.memory }}
{{- if ge (include "splitserve.bytes" .pool.shm | int64) (include "splitserve.bytes" $limits.memory | int64) }}
{{- fail (printf "pools.%s.shm: what lies in /dev/shm (up to %v) counts as the container's memory, of which it may have %v; give resources.limits.memory more, or shm less" .poolName .pool.shm $limits.memory) }}
{{- end }}
{{- end }}
{{- if and (include "splitserve.ownCache" .root) (hasPrefix "hf://" .root.Values.model.name) }}
{{- /* A node that has no room for a hub's model shall not be given the pod. */ -}}
{{- $_ := set $resources "requests" (merge (dict) ($resources.requests | default dict) (dict "ephemeral-storage" .root.Values.model.cache.size)) }}
{{- end }}
resources: {{- toYaml (set $resources "limits" $limits) | nindent 2 }}
volumeMounts:
  {{- include "splitserve.mounts" .root | nindent 2 }}
  - {name: shm, mountPath: /dev/shm}
  {{- with .pool.extraVolumeMounts }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}

{{- define "splitserve.workerVolumes" -}}
volumes:
  {{- include "splitserve.volumes" .root | nindent 2 }}
  - name: shm
    emptyDir: {medium: Memory, sizeLimit: {{ .pool.shm }}}
  {{- with .pool.extraVolumes }}{{ toYaml . | nindent 2 }}{{ end }}
{{- end }}
