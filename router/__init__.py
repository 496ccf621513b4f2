"""The front door: OpenAI HTTP and gRPC, the radix index, the cost policy, dispatch. No torch."""
