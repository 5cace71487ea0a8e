"""Chat templates that treat tools like those of well-known families of models.

Each is written for these tests. Markers, the places of tools, calls and results, and refused chats are those
of the family's own template; the wording is not.
"""

from __future__ import annotations

_CHATML = """\
{%- for message in messages %}
{%- if message.role == 'assistant' and message.tool_calls %}
{{- '<|im_start|>assistant\\n' + message.content }}
{%- for call in message.tool_calls %}CALL{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

_TOOLS = """\
{%- if tools %}
{{- '<|im_start|>system\\nThese are the functions:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' + tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\nCall one as follows:\\nHOW<|im_end|>\\n' }}
{%- endif %}"""

_QWEN_CALL = """{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}"""

_XML_CALL = """{{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}
{%- for name, value in call.function.arguments | items %}
{{- '<parameter=' + name + '>\\n' + value | string + '\\n</parameter>\\n' }}
{%- endfor %}{{- '</function>\\n</tool_call>' }}"""

_GLM_CALL = """{{- '\\n<tool_call>' + call.function.name }}
{%- for name, value in call.function.arguments.items() %}
{{- '\\n<arg_key>' + name + '</arg_key>\\n<arg_value>' + value | string + '</arg_value>' }}
{%- endfor %}{{- '\\n</tool_call>' }}"""

_HOW_QWEN = '<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call>'

_LLAMA = """\
{{- bos_token }}
{%- if tools %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nThese are functions. Call one with ' }}
{{- '{"name": function name, "parameters": dictionary of argument name and its value}.\\n' }}
{%- for tool in tools %}{{- tool | tojson(indent=4) }}{%- endfor %}{{- '<|eot_id|>' }}
{%- endif %}
{%- for message in messages %}
{%- if 'tool_calls' in message %}
{%- if message.tool_calls | length != 1 %}{{- raise_exception('one call at once') }}{%- endif %}
{%- set call = message.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
{{- '{"name": "' + call.name + '", "parameters": ' }}{{- call.arguments | tojson }}{{- '}<|eot_id|>' }}
{%- else %}
{%- set role = 'ipython' if message.role == 'tool' else message.role %}
{{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""

_MISTRAL = """\
{{- bos_token }}
{%- if messages[0].role == 'system' %}
{%- set system, rest = messages[0].content, messages[1:] %}
{%- else %}
{%- set system, rest = '', messages %}
{%- endif %}
{%- for message in rest %}
{%- if message.role == 'user' %}
{%- if tools and loop.last %}{{- '[AVAILABLE_TOOLS]' + tools | tojson + '[/AVAILABLE_TOOLS]' }}{%- endif %}
{{- '[INST]' + system + message.content + '[/INST]' }}
{%- elif message.tool_calls %}CALLS{{- eos_token }}
{%- elif message.role == 'assistant' %}{{- message.content + eos_token }}
{%- elif message.role == 'tool' %}
{%- if message.tool_call_id | length != 9 %}{{- raise_exception('an id has nine characters') }}{%- endif %}
{{- '[TOOL_RESULTS]{"content": ' + message.content + ', "call_id": "' + message.tool_call_id }}
{{- '"}[/TOOL_RESULTS]' }}
{%- else %}{{- raise_exception('there is no such role') }}
{%- endif %}
{%- endfor %}"""

_NEMO_CALLS = """{{- '[TOOL_CALLS]BLANK[' }}
{%- for call in message.tool_calls %}
{%- if call.id | length != 9 %}{{- raise_exception('an id has nine characters') }}{%- endif %}
{{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' }}
{%- if not loop.last %}{{- ', ' }}{%- endif %}
{%- endfor %}{{- ']' }}"""

_ARGS_CALLS = """{%- for call in message.tool_calls %}
{{- '[TOOL_CALLS]' + call.function.name + '[ARGS]' + call.function.arguments | tojson }}{%- endfor %}"""

_DEEPSEEK = """\
{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'system' %}{{- message.content }}
{%- elif message.role == 'user' %}{{- '<｜User｜>' + message.content }}
{%- elif message.role == 'assistant' and message.tool_calls %}
{{- '<｜Assistant｜>' + message.content + '<｜tool▁calls▁begin｜>' }}
{%- for call in message.tool_calls %}
{{- '<｜tool▁call▁begin｜>' + CALL + '<｜tool▁call▁end｜>' }}
{%- endfor %}
{{- '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}
{%- elif message.role == 'assistant' %}
{{- '<｜Assistant｜>' + message.content.split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}
{%- elif message.role == 'tool' %}
{{- '<｜tool▁output▁begin｜>' + message.content + '<｜tool▁output▁end｜>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<｜Assistant｜><think>\\n' }}{%- endif %}"""

_FENCED_CALL = (
    "'function<｜tool▁sep｜>' + call.function.name + '\\n```json\\n' + call.function.arguments + '\\n```'"
)

_GEMMA = """\
{{- bos_token }}
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) or message.role == 'system' %}
{{- raise_exception('users and models take turns') }}
{%- endif %}
{%- set role = 'model' if message.role == 'assistant' else message.role %}
{{- '<start_of_turn>' + role + '\\n' + message.content | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<start_of_turn>model\\n' }}{%- endif %}"""

_SMOLLM3 = """\
{%- if tools %}
{{- '<|im_start|>system\\nYou are SmolLM.\\n<tools>' + tools | tojson }}
{{- '</tools>\\nCall one as follows:\\nHOW<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""

_SMOLLM2 = """\
{%- if messages[0].role != 'system' %}
{{- '<|im_start|>system\\nYou are an assistant named SmolLM.<|im_end|>\\n' }}
{%- endif %}"""


def _chatml(call: str, how: str) -> str:
    return _TOOLS.replace("HOW", how) + _CHATML.replace("CALL", call)


_PHI4_MINI = """\
{%- for message in messages %}
{%- set tools = '<|tool|>' + message.tools + '<|/tool|>' if message.tools is string else '' %}
{{- '<|' + message.role + '|>' + message.content + tools + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"""

_COMMAND_R7B = """\
{{- bos_token }}
{%- if tools %}
{{- '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Write an action. These are the tools:\\n' }}
{%- for tool in tools %}{{- tool.function | tojson }}{%- endfor %}{{- '<|END_OF_TURN_TOKEN|>' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' and message.tool_calls %}
{{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_ACTION|>[\\n' }}
{%- for call in message.tool_calls %}
{{- '    {"tool_call_id": "' ~ loop.index0 ~ '", "tool_name": "' + call.function.name }}
{{- '", "parameters": ' + call.function.arguments | tojson + '}' }}
{%- if not loop.last %}{{- ',\\n' }}{%- endif %}
{%- endfor %}
{{- '\\n]<|END_ACTION|><|END_OF_TURN_TOKEN|>' }}
{%- elif message.role == 'tool' %}
{{- '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|><|START_TOOL_RESULT|>' + message.content }}
{{- '<|END_TOOL_RESULT|><|END_OF_TURN_TOKEN|>' }}
{%- else %}
{%- set who = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'}[message.role] %}
{{- '<|START_OF_TURN_TOKEN|><|' + who + '_TOKEN|>' + message.content + '<|END_OF_TURN_TOKEN|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{%- endif %}"""

_COMMAND_R = """\
{{- bos_token }}
{%- for message in messages %}
{%- if (message.role == 'user') != (loop.index0 % 2 == 0) and message.role != 'system' %}
{{- raise_exception('users and chatbots take turns') }}
{%- endif %}
{%- set who = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'}[message.role] %}
{{- '<|START_OF_TURN_TOKEN|><|' + who + '_TOKEN|>' + message.content | trim + '<|END_OF_TURN_TOKEN|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{%- endif %}"""

_COMMAND_R_2024 = """\
{{- bos_token }}
{%- if tools %}
{{- '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>These are the tools:\\n' }}
{%- for tool in tools %}{{- tool.function | tojson }}{%- endfor %}{{- '<|END_OF_TURN_TOKEN|>' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' and message.tool_calls %}
{{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' + message.content + '\\nAction:\\n```json\\n[\\n' }}
{%- for call in message.tool_calls %}
{{- '    {\\n        "tool_name": "' + call.function.name + '",\\n        "parameters": ' }}
{{- call.function.arguments | tojson(indent=4) + '\\n    }' }}{%- if not loop.last %}{{- ',\\n' }}{%- endif %}
{%- endfor %}
{{- '\\n]```\\n<|END_OF_TURN_TOKEN|>' }}
{%- elif message.role == 'tool' %}
{{- '<|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|><results>\\n' + message.content }}
{{- '</results><|END_OF_TURN_TOKEN|>' }}
{%- else %}
{%- set who = {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'}[message.role] %}
{{- '<|START_OF_TURN_TOKEN|><|' + who + '_TOKEN|>' + message.content + '<|END_OF_TURN_TOKEN|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{%- endif %}"""

_LLAMA4 = """\
{{- bos_token }}
{%- if tools %}
{{- '<|header_start|>system<|header_end|>\\n\\nYou may call these:\\n' }}
{%- for tool in tools %}{{- tool | tojson(indent=4) }}{%- endfor %}{{- '<|eot|>' }}
{%- endif %}
{%- for message in messages %}
{%- set role = 'ipython' if message.role == 'tool' else message.role %}
{{- '<|header_start|>' + role + '<|header_end|>\\n\\n' }}
{%- if message.tool_calls %}CALLS
{%- else %}{{- message.content }}
{%- endif %}
{{- '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|header_start|>assistant<|header_end|>\\n\\n' }}{%- endif %}"""

_JSON_CALLS = """\
{{- '<|python_start|>' + message.content + '<|python_end|>' }}
{%- for call in message.tool_calls %}
{{- '{"name": "' + call.function.name + '", "parameters": ' + call.function.arguments | tojson + '}' }}
{%- endfor %}"""

_PYTHON_CALLS = """\
{{- '[' }}
{%- for call in message.tool_calls %}
{{- call.function.name + '(' }}
{%- for key, value in call.function.arguments.items() %}
{{- key + '=' + value | tojson }}{%- if not loop.last %}{{- ', ' }}{%- endif %}
{%- endfor %}
{{- ')' }}{%- if not loop.last %}{{- ', ' }}{%- endif %}
{%- endfor %}
{{- ']' }}"""

_GPT_OSS = """\
{{- '<|start|>system<|message|>Reasoning: ' + (reasoning_effort or 'medium') + '<|end|>' }}
{%- if tools or messages[0].role == 'system' %}
{{- '<|start|>developer<|message|>' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content }}{%- endif %}
{%- for tool in tools or [] %}
{{- '\\n// ' + tool.function.description + '\\ntype ' + tool.function.name + ' = (_: ' }}
{{- tool.function.parameters | tojson + ') => any;' }}
{%- endfor %}
{{- '<|end|>' }}
{%- endif %}
{%- set last = namespace(name='') %}
{%- for message in messages %}
{%- if message.role == 'assistant' and message.tool_calls %}
{%- set call = message.tool_calls[0].function %}
{%- set last.name = call.name %}
{{- '<|start|>assistant to=functions.' + call.name + '<|channel|>commentary json<|message|>' }}
{{- call.arguments | tojson + '<|call|>' }}
{%- elif message.role == 'tool' %}
{{- '<|start|>functions to=assistant<|channel|>commentary<|message|>' + message.content + '<|end|>' }}
{%- elif message.role == 'assistant' %}
{{- '<|start|>assistant<|channel|>final<|message|>' + message.content + '<|end|>' }}
{%- elif message.role == 'user' %}{{- '<|start|>user<|message|>' + message.content + '<|end|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}"""

#: by the names in docs/openai.md
TEMPLATES = {
    "Qwen2.5": _chatml(_QWEN_CALL, _HOW_QWEN),
    "Qwen3-Coder": _chatml(_XML_CALL, r"<tool_call>\n<function=name>\n...\n</function>\n</tool_call>"),
    "GLM-4.6": _chatml(_GLM_CALL, r"<tool_call>{name}\n<arg_key>...</arg_key>...</tool_call>"),
    "Llama-3.2": _LLAMA,
    "Mistral-Nemo": _MISTRAL.replace("CALLS", _NEMO_CALLS, 1).replace("BLANK", ""),
    "Mistral-Small-3.1": _MISTRAL.replace("CALLS", _NEMO_CALLS, 1).replace("BLANK", " "),
    "Mistral-Small-3.2": _MISTRAL.replace("CALLS", _ARGS_CALLS, 1),
    "DeepSeek-R1": _DEEPSEEK.replace("CALL", _FENCED_CALL),
    "DeepSeek-V3.1": _DEEPSEEK.replace(
        "CALL", "call.function.name + '<｜tool▁sep｜>' + call.function.arguments"
    ),
    "gpt-oss": _GPT_OSS,
    "Gemma-2": _GEMMA,
    "Gemma-3": _GEMMA.replace("message.content", "message.content | replace('IMAGE', '<start_of_image>')"),
    "Phi-4-mini": _PHI4_MINI,
    "Command-R": _COMMAND_R,
    "Command-R of August 2024": _COMMAND_R_2024,
    "Command-R7B": _COMMAND_R7B,
    "Llama-4": _LLAMA4.replace("CALLS", _JSON_CALLS),
    "Llama-4 with calls in Python": _LLAMA4.replace("CALLS", _PYTHON_CALLS),
    "SmolLM2": _SMOLLM2 + _CHATML.replace("CALL", ""),
    "SmolLM3": _SMOLLM3.replace("HOW", _HOW_QWEN),
}
