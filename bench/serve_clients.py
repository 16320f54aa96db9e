"""Checks of bench/serve_clients.sh: arguments are the package, the base URL, the model and a folder with its tokenizer."""
import json, os, sys, tempfile, urllib.request

package, base, name, folder = sys.argv[1:]
question = [{"role": "user", "content": "Please add a pear."}]
tools = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}]


def check_openai():
    import openai

    client = openai.OpenAI(base_url=base, api_key="none", max_retries=0)
    chat = client.chat.completions
    assert [m.id for m in client.models.list()] == [name]
    settings = dict(model=name, messages=question, seed=3, max_tokens=40)
    one = chat.create(**settings, logprobs=True, top_logprobs=3)
    assert one.choices == chat.create(**settings, logprobs=True, top_logprobs=3).choices
    text, end, usage = "", None, None
    for event in chat.create(**settings, stream=True, stream_options={"include_usage": True}):
        usage = event.usage or usage
        for choice in event.choices:
            text += choice.delta.content or ""
            end = choice.finish_reason or end
    assert (text, end) == (one.choices[0].message.content, one.choices[0].finish_reason)
    assert usage.total_tokens == one.usage.total_tokens
    for seed in range(500):  # until a reply calls a tool
        settings = dict(model=name, messages=question, tools=tools, seed=seed, max_tokens=40)
        reply = chat.create(**settings)
        message = reply.choices[0].message
        if not message.tool_calls:
            continue
        json.loads(message.tool_calls[0].function.arguments)
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "ok"}
        after = chat.create(model=name, messages=question + [message, result], tools=tools, max_tokens=5)
        assert after.usage.prompt_tokens_details.cached_tokens >= reply.usage.total_tokens - 1  # the sampled ids
        with chat.stream(**settings) as stream:
            for _ in stream:
                pass
            streamed = stream.get_final_completion().choices[0].message.tool_calls
        assert [c.function.name for c in streamed] == [c.function.name for c in message.tool_calls]
        break
    else:
        raise AssertionError("no reply calls a tool")
    for want, change in [(openai.BadRequestError, {"temperature": -1}), (openai.NotFoundError, {"model": "x"}),
                         (openai.BadRequestError, {"extra_body": {"foo": 1}})]:
        try:
            chat.create(**{"model": name, "messages": question, **change})
        except want as error:
            assert error.body["message"]
        else:
            raise AssertionError(f"{change} was accepted")


def check_inspect_ai():
    os.environ.update(RCGRPO_API_KEY="none", RCGRPO_BASE_URL=base)
    from inspect_ai import Task, eval
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import tool

    @tool
    def ls():
        async def execute():
            """Lists the files."""
            return "a b"

        return execute

    samples = [Sample(input=question[0]["content"], target="x") for _ in range(8)]
    task = Task(dataset=samples, solver=[use_tools(ls()), generate()], scorer=includes())
    log = eval(task, model=f"openai-api/rcgrpo/{name}", max_tokens=30, display="none", log_dir=tempfile.mkdtemp())[0]
    assert log.status == "success" and log.results.completed_samples == 8, log.error


def check_lm_eval():
    from lm_eval.api.instance import Instance
    from lm_eval.models.api_models import JsonChatStr
    from lm_eval.models.openai_completions import LocalChatCompletion, LocalCompletionsAPI

    lm = LocalCompletionsAPI(model=name, base_url=base + "/completions", tokenizer=folder,
                             tokenizer_backend="huggingface", num_concurrent=4, max_length=1024)
    pairs = [("Please add a", " pear."), ("Please add a", " lamp to it")]
    scores = lm.loglikelihood([Instance("loglikelihood", {}, pair, i) for i, pair in enumerate(pairs)])
    for (context, rest), (score, _) in zip(pairs, scores):  # the sum over single tokens, each the next one of a prompt
        ids, own = lm.tokenizer.encode(context + rest), 0.0
        for n in range(len(lm.tokenizer.encode(context)), len(ids)):
            body = {"model": name, "prompt": ids[:n + 1], "echo": True, "logprobs": 1, "max_tokens": 1}
            request = urllib.request.Request(base + "/completions", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            own += json.load(urllib.request.urlopen(request))["choices"][0]["logprobs"]["token_logprobs"][n]
        assert abs(own - score) < 1e-4, (own, score)
    until = {"until": ["\n"], "max_gen_toks": 8, "temperature": 0}
    assert len(lm.generate_until([Instance("generate_until", {}, ("Please add", until), 0)])) == 1
    lm = LocalChatCompletion(model=name, base_url=base + "/chat/completions", num_concurrent=1)
    chat = JsonChatStr(json.dumps(question))
    assert len(lm.generate_until([Instance("generate_until", {}, (chat, until), 0)])) == 1


def check_gguf():
    """Chats with a pretrained model: a fact, the same as a stream, and tools, which it calls if it can."""
    import openai

    chat = openai.OpenAI(base_url=base, api_key="none", max_retries=0).chat.completions

    def streamed(**settings):
        text, calls, end = "", [], None
        for event in chat.create(**settings, stream=True):
            for choice in event.choices:
                text += choice.delta.content or ""
                end = choice.finish_reason or end
                for part in choice.delta.tool_calls or []:
                    if part.index == len(calls):
                        calls.append([part.function.name, ""])
                    calls[part.index][1] += part.function.arguments or ""
        return text, calls, end

    settings = dict(model=name, temperature=0, max_tokens=24,
                    messages=[{"role": "user", "content": "What is the capital of France?"}])
    one = chat.create(**settings)
    text = one.choices[0].message.content
    assert "Paris" in text, text
    assert streamed(**settings) == (text, [], one.choices[0].finish_reason)
    assert one.usage.total_tokens == one.usage.prompt_tokens + one.usage.completion_tokens > 24
    city = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    weather = [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather of a city.",
                                                 "parameters": city}}]
    called = 0
    for place in ["Paris", "London", "Rome"]:
        ask = [{"role": "user", "content": f"What is the weather in {place}?"}]
        settings = dict(model=name, messages=ask, tools=weather, temperature=0, max_tokens=60)
        message = chat.create(**settings).choices[0].message
        calls = [[c.function.name, c.function.arguments] for c in message.tool_calls or []]
        text, parts, _ = streamed(**settings)
        assert (text, parts) == (message.content or "", calls), (text, parts, message)
        if not calls:
            assert text
            continue
        called += 1
        for function, arguments in calls:
            assert function and isinstance(json.loads(arguments), dict)
        results = [{"role": "tool", "tool_call_id": c.id, "content": "sunny"} for c in message.tool_calls]
        assert chat.create(**{**settings, "messages": ask + [message] + results}).choices[0].finish_reason
    print(f"{called} of 3 replies call a tool")


{"openai": check_openai, "gguf": check_gguf, "inspect-ai": check_inspect_ai, "lm-eval": check_lm_eval}[package]()
print(f"{package}: ok")
