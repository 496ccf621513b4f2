"""vLLM on the CPU as one of the compared: MODEL_FOLDER THREADS; runs in its environment."""

import os
import sys

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{int(sys.argv[2]) - 1}"


def main() -> None:
    from turns import answers_only, take_turns

    answers = answers_only()
    import vllm

    engine = vllm.LLM(
        sys.argv[1],
        dtype="bfloat16",
        enforce_eager=True,  # compiled, this model's text comes out wrong (vLLM 0.32)
        max_model_len=4096,
        max_num_batched_tokens=4096,
        enable_prefix_caching=False,
    )

    def generate(prompts, max_tokens):
        params = vllm.SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
        asked = [{"prompt_token_ids": ids} for ids in prompts]
        results = engine.generate(asked, params, use_tqdm=False)
        return [list(result.outputs[0].token_ids) for result in results]

    about = {"name": "vLLM", "version": vllm.__version__, "precision": "weights bf16, KV bf16"}
    take_turns(answers, about, generate)


if __name__ == "__main__":  # its engine process imports this file again
    main()
