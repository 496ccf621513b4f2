"""vLLM on the CPU as one of the compared: MODEL_FOLDER THREADS [SETTINGS]; in its environment.

SETTINGS is a JSON object: {"until_end": true} lets answers end where the model does, all else is
given to vllm.LLM.
"""

import json
import os
import sys


def settings(words):
    """(whether answers end where the model does, what vllm.LLM is given) of the third word."""
    given = json.loads(words[2]) if len(words) > 2 else {}
    return given.pop("until_end", False), given


def main() -> None:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{int(sys.argv[2]) - 1}"
    from turns import answers_only, take_turns

    answers = answers_only()
    import vllm

    until_end, further = settings(sys.argv[1:])
    engine = vllm.LLM(
        sys.argv[1],
        dtype="bfloat16",
        enforce_eager=True,  # compiled, this model's text comes out wrong (vLLM 0.32)
        max_model_len=4096,
        max_num_batched_tokens=4096,
        enable_prefix_caching=False,
        **further,
    )

    def generate(prompts, max_tokens):
        params = vllm.SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=not until_end)
        asked = [{"prompt_token_ids": ids} for ids in prompts]
        results = engine.generate(asked, params, use_tqdm=False)
        return [list(result.outputs[0].token_ids) for result in results]

    about = {
        "name": "vLLM",
        "version": vllm.__version__,
        "precision": "weights bf16, KV bf16",
        "settings": json.dumps(further),
    }
    take_turns(answers, about, generate)


if __name__ == "__main__":  # its engine process imports this file again
    main()
