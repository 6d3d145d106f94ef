"""Checks a server with the openai client: openai_client.py URL"""

import json
import sys

from skip import module

openai = module("openai")

client = openai.OpenAI(base_url=f"{sys.argv[1]}/v1", api_key="none", max_retries=0)
model = client.models.list().data[0].id
messages = [{"role": "user", "content": "In the beginning"}]

# Chat, whole and streamed.
whole = client.chat.completions.create(model=model, messages=messages, max_tokens=12, seed=3)
text = whole.choices[0].message.content
assert whole.choices[0].finish_reason == "length", whole
assert whole.usage.completion_tokens == 12, whole
stream = client.chat.completions.create(
    model=model, messages=messages, max_tokens=12, seed=3, stream=True, stream_options={"include_usage": True}
)
chunks = list(stream)
assert chunks[0].choices[0].delta.role == "assistant", chunks[0]
joined = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert joined == text, (joined, text)
assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage, chunks[-1]
assert all(chunk.usage is None for chunk in chunks[:-1])

# Log-probabilities.
answer = client.chat.completions.create(
    model=model, messages=messages, max_tokens=4, logprobs=True, top_logprobs=2, temperature=0
)
tokens = answer.choices[0].logprobs.content
assert len(tokens) == 4 and all(len(token.top_logprobs) == 2 for token in tokens), answer
assert b"".join(bytes(token.bytes) for token in tokens).decode() == answer.choices[0].message.content
answer = client.chat.completions.create(model=model, messages=messages, max_tokens=4, logprobs=True)
assert len(answer.choices[0].logprobs.content) == 4, answer

# Completions.
answer = client.completions.create(
    model=model, prompt=["And God said", "The king"], n=2, max_tokens=6, logprobs=2, seed=1, stop=["\n"]
)
assert [choice.index for choice in answer.choices] == [0, 1, 2, 3], answer
for choice in answer.choices:
    logprobs = choice.logprobs
    for token, number, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs):
        assert top[token] == number, choice
streamed = list(client.completions.create(model=model, prompt="The", max_tokens=8, seed=5, stream=True))
whole = client.completions.create(model=model, prompt="The", max_tokens=8, seed=5)
assert "".join(chunk.choices[0].text for chunk in streamed) == whole.choices[0].text

# Errors.
for wrong, kind in [
    ({"model": "none"}, openai.NotFoundError),
    ({"temperature": -1}, openai.BadRequestError),
    ({"messages": []}, openai.BadRequestError),
]:
    try:
        client.chat.completions.create(**{"model": model, "messages": messages, **wrong})
    except kind as error:
        assert error.body["message"], error
    else:
        raise AssertionError(f"{wrong} is accepted")

# Structured answers. The shipped model has no tool calls.
schema = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "wise": {"type": "boolean"}},
    "required": ["name", "wise"],
    "additionalProperties": False,
}
answer = client.chat.completions.create(
    model=model,
    messages=messages,
    max_tokens=500,
    response_format={"type": "json_schema", "json_schema": {"name": "king", "schema": schema, "strict": True}},
)

found = json.loads(answer.choices[0].message.content)
assert set(found) == {"name", "wise"} and isinstance(found["wise"], bool), found
print(f"openai {openai.__version__}: all checks passed")
