"""Chats and values for make_chat_fixtures.py and check_templates.py."""

CHATS = {
    "short": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello, how can I help?"},
    ],
    "system": [
        {"role": "system", "content": "  Be brief.\n"},
        {"role": "user", "content": "  2 + 2? "},
        {"role": "assistant", "content": "<think>\nadd them\n</think>\n\n4"},
        {"role": "user", "content": "Über 'quotes' and \"more\" – 日本語 🙂"},
        {"role": "assistant", "content": "Ja."},
    ],
    "tools": [
        {"role": "user", "content": "Weather in Oslo?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "type": "function",
                    "id": "c1",
                    "function": {"name": "weather", "arguments": {"city": "Oslo", "days": 2, "x": 0.5}},
                }
            ],
        },
        {"role": "tool", "name": "weather", "content": "{\"t\": -3}"},
        {"role": "assistant", "content": "Cold: -3."},
    ],
    "parts": [
        {
            "role": "user",
            "content": [{"type": "text", "text": "What is this?"}, {"type": "image"}],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
    ],
    "unfinished": [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ],
    "wrong order": [
        {"role": "user", "content": "one"},
        {"role": "user", "content": "two"},
    ],
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tells the <weather> & more; it's \"fine\"",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "which"},
                    "days": {"type": ["integer", "null"], "enum": [1, 2, None, True]},
                },
                "required": ["city"],
            },
        },
    }
]

COMMON = {"bos_token": "<s>", "eos_token": "</s>", "tools": None}
EXTRAS = {
    "plain": {},
    "prompt": {"add_generation_prompt": True},
    "tools": {"tools": TOOLS, "enable_thinking": False},
}

VALUES = {
    "a": 1,
    "b": 2.5,
    "s": "Hello World",
    "u": "  ÄÖÜ straße\u00a0ﬁn 🙂 日本 ",
    "e": "",
    "n": None,
    "t": True,
    "f": False,
    "l": [3, 1, 2],
    "w": ["b", "A", "c", "a"],
    "d": {"x": 1, "Y": [1, {"z": None}], "items": "mine"},
    "m": [{"n": "b", "v": 2}, {"n": "A", "v": 1, "k": {"q": 7}}, {"n": "c", "v": 2}],
    "q": "it's \"q\" \\ \n\t<&>\u2028\x7f",
}

# Further ones for comparisons, which are not kept in fixtures.
MORE_CHATS = {
    "thoughts": [
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "one", "reasoning_content": "count", "thinking": "count"},
        {"role": "user", "content": "2"},
        {"role": "assistant", "content": "two", "reasoning_content": "\ncount on\n", "thinking": "on"},
    ],
    "two calls": [
        {"role": "system", "content": "Use tools."},
        {"role": "user", "content": "Weather in Oslo and Rome?"},
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "abcdefgh1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}},
                {"id": "abcdefgh2", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome", "n": None}}},
            ],
        },
        {"role": "tool", "tool_call_id": "abcdefgh1", "name": "weather", "content": "-3"},
        {"role": "tool", "tool_call_id": "abcdefgh2", "name": "weather", "content": "12"},
        {"role": "assistant", "content": "Cold and mild."},
        {"role": "user", "content": "Thanks"},
    ],
    "arguments as text": [
        {"role": "user", "content": "Go"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "abcdefgh1", "function": {"name": "go", "arguments": "{\"a\": 1}"}}],
        },
        {"role": "tool", "tool_call_id": "abcdefgh1", "content": [{"type": "text", "text": "gone"}]},
    ],
    "developer": [
        {"role": "developer", "content": "Dev."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho"},
    ],
    "parts with system": [
        {"role": "system", "content": [{"type": "text", "text": "Sys"}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "c"}]},
        {"role": "user", "content": [{"type": "image"}, {"type": "audio"}, {"type": "video"}]},
    ],
    "empty": [],
}
MORE_EXTRAS = {
    "think": {"add_generation_prompt": True, "enable_thinking": True, "thinking": True, "reasoning_effort": "high"},
    "tools and prompt": {"tools": TOOLS, "add_generation_prompt": True, "builtin_tools": ["browser", "python"]},
    "documents": {"documents": [{"title": "T", "text": "Text", "doc_id": 1}], "date_string": "26 Jul 2024"},
    "no tokens": {"bos_token": "", "eos_token": "", "tools": []},
}
