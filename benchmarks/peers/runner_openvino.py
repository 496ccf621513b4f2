"""OpenVINO GenAI as one of the compared: GGUF THREADS; runs in its environment."""

import sys

import numpy as np
import openvino as ov
import openvino_genai as genai
from turns import answers_only, take_turns


def main() -> None:
    answers = answers_only()
    scheduler = genai.SchedulerConfig()
    scheduler.enable_prefix_caching = False
    scheduler.max_num_batched_tokens = 4096
    pipe = genai.LLMPipeline(
        sys.argv[1], "CPU", INFERENCE_NUM_THREADS=int(sys.argv[2]), scheduler_config=scheduler
    )

    def generate(prompts, max_tokens):
        config = genai.GenerationConfig()
        config.do_sample, config.ignore_eos, config.max_new_tokens = False, True, max_tokens
        ids = np.array(prompts, dtype=np.int64)  # a batch of one length
        inputs = genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
        return [list(map(int, tokens)) for tokens in pipe.generate(inputs, config).tokens]

    about = {
        "name": "OpenVINO",
        "version": genai.__version__,
        "precision": "weights int4 (the GGUF's groups), activations int8, KV int8",
    }
    take_turns(answers, about, generate)


if __name__ == "__main__":
    main()
