"""Checks a server with the anthropic client: anthropic_client.py URL"""

import sys

from skip import module

anthropic = module("anthropic")

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0)
model = client.get("/v1/models", cast_to=object)["data"][0]["id"]
request = {"model": model, "max_tokens": 12, "messages": [{"role": "user", "content": "In the beginning"}]}
request["extra_body"] = {"seed": 3}
whole = client.messages.create(**request)
assert whole.stop_reason == "max_tokens" and whole.usage.output_tokens == 12, whole
with client.messages.stream(**request) as stream:
    joined = "".join(stream.text_stream)
    final = stream.get_final_message()
assert joined == whole.content[0].text == final.content[0].text, (joined, whole)
assert final.usage.output_tokens == 12, final
try:
    client.messages.create(**{**request, "messages": []})
except anthropic.BadRequestError as error:
    assert "messages" in str(error), error
else:
    raise AssertionError("a request without messages is accepted")
print(f"anthropic {anthropic.__version__}: all checks passed")
