"""The table of the campaign `hostile`: hostile controllers, each with its misdeed and expected outcome."""

from __future__ import annotations

from collections.abc import Iterator

from lab.campaigns.odd_modules import ODD_MODULES
from lab.campaigns.refused_modules import REFUSED_MODULES
from lab.campaigns.stranger import CRITICAL, GOES_ON, STOPS, Stranger

_CALLBACKS = {
    "start": "_initialize",
    "arg": "aici_arg",
    "init": "aici_init",
    "prompt": "aici_init_prompt",
    "post": "aici_post_process",
    "pre": "aici_pre_process",
    "mid": "aici_mid_process",
}
_MID = "aici_mid_process"


def _in_every_callback() -> Iterator[Stranger]:
    for where, name in _CALLBACKS.items():
        yield Stranger(f"{where}_loop", f"{name} never returns", "time_limit", name, f"{where} loop")
        yield Stranger(
            f"{where}_recurse", f"{name} recurses without end", "trap", "stack", f"{where} recurse"
        )
        yield Stranger(f"{where}_trap", f"{name} traps", "trap", f"{name} trapped", f"{where} unreachable")
        yield Stranger(
            f"{where}_memory",
            f"{name} takes all memory that it can get, then traps",
            "memory_limit time_limit",
            name,
            f"{where} take_memory",
        )
        yield Stranger(
            f"{where}_print", f"{name} prints forever", "time_limit", name, f"{where} print_for_ever"
        )
        outcome = {"start": "failed", "arg": "failed", "init": "argument"}.get(where, "failed")
        yield Stranger(f"{where}_fail", f"{name} calls aici_fail", outcome, "no such luck", f"{where} fail")
        outcome = STOPS if where in ("post", "pre", "mid") else outcome
        yield Stranger(f"{where}_stop", f"{name} calls aici_stop", outcome, "", f"{where} stop")


STRANGERS: tuple[Stranger, ...] = (
    *_in_every_callback(),
    # ---- traps of each kind
    Stranger("load_outside", "reads outside its memory", "trap", "out of bounds", "mid load_outside"),
    Stranger("store_outside", "writes outside its memory", "trap", "out of bounds", "mid store_outside"),
    Stranger("divide", "divides by zero", "trap", "divide by zero", "mid divide"),
    Stranger("overflow", "divides the least integer by -1", "trap", "overflow", "mid overflow"),
    Stranger("call_nothing", "calls an invalid function pointer", "trap", "table", "mid call_nothing"),
    Stranger(
        "call_other_type",
        "calls a function through a pointer of another type",
        "trap",
        "type",
        "mid call_other_type",
    ),
    Stranger("exit", "exits with a status", "failed", "status 7", "mid leave 7"),
    Stranger("exit_well", "exits with status 0", STOPS, "", "mid leave 0"),
    Stranger("abort", "calls abort", "trap", "unreachable", "mid die"),
    Stranger(
        "fail_with_garbage", "fails with bytes that are not UTF-8", "failed", "", "mid fail_with_garbage"
    ),
    # ---- the stack
    Stranger("recurse_calling", "calls the host at each level", "trap", "stack", "mid recurse_calling"),
    Stranger("recurse_calling_pre", "the same in pre_process", "trap time_limit", "", "pre recurse_calling"),
    Stranger("loop_deep_down", "loops at the end of its stack", "time_limit", _MID, "mid loop_deep_down"),
    Stranger("loop_deep_down_pre", "the same in pre_process", "time_limit", CRITICAL, "pre loop_deep_down"),
    # ---- memory
    Stranger("memory_kept", "takes all memory and goes on", GOES_ON, "", "mid take_memory_and_go_on"),
    Stranger("touch_in_pre", "fills 60 MB on the critical path", "time_limit", CRITICAL, "pre touch_memory"),
    Stranger("touch_in_post", "fills 60 MB in post_process", "time_limit", CRITICAL, "post touch_memory"),
    Stranger(
        "touch_in_mid", "fills 60 MB in each mid_process", f"time_limit {GOES_ON}", "", "mid touch_memory"
    ),
    Stranger("move", "moves 60 MB by a byte, again and again", "time_limit", _MID, "mid move_memory"),
    Stranger(
        "grow_by_nothing", "calls memory.grow with 0 forever", "time_limit", _MID, "mid grow_by_nothing"
    ),
    Stranger("grow_by_all", "asks for 4 GiB, a hundred times", GOES_ON, "", "mid grow_by_all"),
    # ---- time
    Stranger(
        "work_below",
        "uses most of its time in every mid_process",
        f"{GOES_ON} time_limit",
        "",
        "mid work 9000",
    ),
    Stranger(
        "work_above", "uses more than its time in every mid_process", "time_limit", _MID, "mid work 900000"
    ),
    Stranger("pre_below", "uses a part of its time on the critical path", GOES_ON, "", "pre work 150"),
    Stranger(
        "pre_above", "uses more than its time on the critical path", "time_limit", CRITICAL, "pre work 6000"
    ),
    Stranger(
        "post_above", "uses more than its time in post_process", "time_limit", CRITICAL, "post work 6000"
    ),
    Stranger("sleep", "sleeps in poll_oneoff forever", "time_limit", _MID, "mid sleep_for_ever"),
    Stranger("sleep_in_pre", "sleeps on the critical path", "time_limit", CRITICAL, "pre sleep_for_ever"),
    Stranger("yield", "calls sched_yield forever", "time_limit", _MID, "mid yield_for_ever"),
    Stranger("clock", "waits for the clock, which stands still", "time_limit", _MID, "mid wait_for_clock"),
    Stranger("random", "takes random numbers forever", "time_limit", _MID, "mid random_for_ever"),
    Stranger("random_in_pre", "the same on the critical path", "time_limit", CRITICAL, "pre random_for_ever"),
    Stranger(
        "write_parts", "writes a thousand parts at a time forever", "time_limit", _MID, "mid write_for_ever"
    ),
    Stranger(
        "write_in_a_row", "512 slow host calls without a loop", "time_limit", CRITICAL, "pre write_in_a_row"
    ),
    Stranger("read", "reads its prompt forever", "time_limit", _MID, "mid read_for_ever"),
    Stranger(
        "read_all",
        "reads 30 MB, again and again, in pre_process",
        "time_limit",
        CRITICAL,
        "pre read_all 0 ",
        size=30 << 20,
    ),
    Stranger("capability", "asks for capabilities forever", "time_limit", CRITICAL, "post ask_for_ever"),
    Stranger(
        "tokenize", "tokenizes 4 KiB again and again", "time_limit", "in host functions", "mid tokenize"
    ),
    Stranger("tokenize_small", "tokenizes a letter forever", "time_limit", "", "mid tokenize_small"),
    Stranger(
        "tokenize_in_pre", "tokenizes on the critical path", "time_limit", CRITICAL, "pre tokenize 1000"
    ),
    Stranger("tokenize_in_post", "tokenizes in post_process", "time_limit", CRITICAL, "post tokenize 1000"),
    Stranger(
        "tokenize_in_prompt", "tokenizes forever in init_prompt", "time_limit", "prompt", "prompt tokenize"
    ),
    # ---- the log
    Stranger("print_much", "prints a megabyte in each step", GOES_ON, "", "mid print_much"),
    Stranger("print_garbage", "prints bytes that are not UTF-8", GOES_ON, "", "mid print_garbage"),
    Stranger("print_in_init", "prints a megabyte in aici_init", GOES_ON, "", "init print_much"),
    # ---- variables
    Stranger("variables", "creates variables without end", "variable_limit", "1024", "mid make_variables"),
    Stranger(
        "variables_long", "creates large variables", "variable_limit", "1048576", "mid make_long_variables"
    ),
    Stranger(
        "variable_extended",
        "appends to a variable without end",
        "variable_limit",
        "1048576",
        "mid extend_variable",
    ),
    Stranger(
        "variable_rewritten",
        "writes 64 KiB to a variable forever",
        "time_limit",
        _MID,
        "mid rewrite_variable",
    ),
    Stranger(
        "variable_in_init", "writes a variable in aici_init", "argument", "aici_init", "init write_variable"
    ),
    # ---- imports with wild pointers and lengths
    Stranger("read_outside", "aici_read to a wild pointer", "result", "outside", "mid read_to_outside"),
    Stranger("read_end", "aici_read over the end of memory", "result", "outside", "mid read_to_the_end"),
    Stranger("read_behind", "aici_read far beyond a source's end", GOES_ON, "", "mid read_far_behind"),
    Stranger(
        "read_source", "aici_read of an unknown source", "result", "4294967295", "mid read_other_source"
    ),
    Stranger(
        "tokenize_outside", "aici_tokenize of a wild pointer", "result", "outside", "mid tokenize_outside"
    ),
    Stranger("tokenize_4g", "aici_tokenize of 4 GiB", "result", "4294967295", "mid tokenize_too_much"),
    Stranger("var_name", "aici_var_get with a wild name", "result", "outside", "mid name_outside"),
    Stranger("var_name_4g", "aici_var_get with a name of 4 GiB", "result", "name of", "mid name_too_long"),
    Stranger(
        "var_length",
        "aici_var_get with a wild address for the length",
        "result",
        "outside",
        "mid length_outside",
    ),
    Stranger("write_name", "aici_var_write with a wild name", "result", "outside", "mid write_name_outside"),
    Stranger(
        "write_value", "aici_var_write with a wild value", "result", "outside", "mid write_value_outside"
    ),
    Stranger("write_4g", "aici_var_write of 4 GiB", "result", "over the limit", "mid write_value_too_long"),
    Stranger(
        "write_op",
        "aici_var_write with an unknown operation",
        "result",
        "no operation",
        "mid write_otherwise",
    ),
    Stranger("fail_outside", "aici_fail with a wild message", "result", "outside", "mid fail_outside"),
    Stranger("capability_wild", "aici_capability of an unknown number", GOES_ON, "", "mid ask_for_nothing"),
    Stranger("wasi_outside", "WASI calls with wild pointers", GOES_ON, "", "mid wasi_outside"),
    Stranger("files", "opens files", GOES_ON, "", "mid open_files"),
    Stranger("vocabulary", "overwrites the shared vocabulary", GOES_ON, "", "mid overwrite_vocabulary"),
    # ---- its step argument
    Stranger("arg_null", "its step argument is at 0", GOES_ON + " result protocol", "", "arg null"),
    Stranger(
        "arg_outside", "its step argument is outside its memory", "result", "aici_step_arg", "arg outside"
    ),
    Stranger(
        "arg_end", "its step argument crosses the end of memory", "result", "aici_step_arg", "arg at_the_end"
    ),
    Stranger("arg_small", "its step argument declares a small size", "result", "size is 8", "arg small"),
    Stranger("arg_unaligned", "its step argument has an odd address", GOES_ON, "", "arg unaligned"),
    Stranger("arg_overwritten", "overwrites its step argument", GOES_ON, "", "mid overwrite_arg"),
    Stranger("arg_shrunk", "declares a small size of its step argument later", GOES_ON, "", "pre shrink_arg"),
    Stranger("refuse", "refuses its argument", "argument", "returned", "init refuse"),
    Stranger("refuse_prompt", "refuses its prompt", "failed", "returned", "prompt refuse"),
    # ---- arguments of many sizes
    Stranger("argument_none", "has no argument", GOES_ON, "", ""),
    Stranger(
        "argument_64k", "has an argument of 64 KiB", GOES_ON, "", "mid ask_for_nothing 0 ", size=64 << 10
    ),
    Stranger("argument_8m", "has an argument of 8 MiB", GOES_ON, "", "mid ask_for_nothing 0 ", size=8 << 20),
    Stranger(
        "argument_300m",
        "has an argument larger than a message",
        "protocol",
        "limit",
        "mid x 0 ",
        size=300 << 20,
    ),
    # ---- results of the critical part
    Stranger("post_null", "post_process returns null", "result", "aici_post_result", "post null"),
    Stranger(
        "post_outside", "post_process returns a wild pointer", "result", "aici_post_result", "post outside"
    ),
    Stranger("post_size", "its result declares the size 0", "result", "size is 0", "post size 0"),
    Stranger("post_verb", "it returns an unknown verb", "result", "verb 99", "post verb 99"),
    Stranger("pre_null", "pre_process returns null", "result", "aici_pre_result", "pre null"),
    Stranger("pre_outside", "pre_process returns a wild pointer", "result", "aici_pre_result", "pre outside"),
    Stranger(
        "pre_end", "its result crosses the end of memory", "result", "aici_pre_result", "pre at_the_end"
    ),
    Stranger(
        "pre_size", "its result declares a huge size, which is allowed", GOES_ON, "", "pre size 4294967295"
    ),
    Stranger("pre_verb", "it returns a verb that only the runtime may use", "result", "verb 7", "pre verb 7"),
    # ---- results of mid_process
    Stranger("mid_null", "mid_process returns null", "result", "aici_mid_result", "answer null"),
    Stranger(
        "mid_outside", "mid_process returns a wild pointer", "result", "aici_mid_result", "answer outside"
    ),
    Stranger(
        "mid_end", "its result crosses the end of memory", "result", "aici_mid_result", "answer at_the_end"
    ),
    Stranger("mid_size", "its result declares the size 0", "result", "size is 0", "answer size 0"),
    Stranger(
        "mid_verb", "it returns a verb that only the runtime may use", "result", "verb 6", "answer verb 6"
    ),
    Stranger("row_kind", "it returns an unknown kind of row", "result", "row kind 77", "answer kind 77"),
    Stranger("row_null", "its mask is at 0", f"{GOES_ON} empty_mask", "", "answer row_null"),
    Stranger("row_outside", "its mask is outside its memory", "result", "row:", "answer row_outside"),
    Stranger("row_end", "its mask crosses the end of memory", "result", "row:", "answer row_at_the_end"),
    Stranger("row_unaligned", "its mask has an odd address", GOES_ON, "", "answer row_unaligned"),
    Stranger("row_short", "its mask has no words", "result", "row_len is 0", "answer row_short"),
    Stranger("row_huge", "its mask claims 4 Gi words", GOES_ON, "", "answer row_huge"),
    Stranger("row_empty", "its mask allows nothing", "empty_mask", "", "answer row_empty"),
    Stranger(
        "row_padding",
        "its mask allows only bits beyond the vocabulary",
        "empty_mask",
        "",
        "answer row_padding",
    ),
    Stranger(
        "row_token",
        "it forces a token outside the vocabulary",
        "result",
        "token 2147483647",
        "answer token 2147483647",
    ),
    Stranger(
        "same_before",
        "it asks for the previous row in the first step",
        "result",
        "SAME",
        "answer same_before",
    ),
    Stranger("temperature_nan", "its temperature is NaN", "result", "temperature", "answer temperature_nan"),
    Stranger(
        "temperature_inf", "its temperature is infinite", "result", "temperature", "answer temperature_inf"
    ),
    Stranger(
        "temperature_minus", "its temperature is -2", "result", "temperature", "answer temperature_minus"
    ),
    Stranger("temperature_zero", "its temperature is -0", GOES_ON, "", "answer temperature_zero"),
    Stranger("top_p_nan", "its top_p is NaN", "result", "top_p", "answer top_p_nan"),
    Stranger(
        "top_n_sigma_inf", "its top_n_sigma is infinite", "result", "top_n_sigma", "answer top_n_sigma_inf"
    ),
    Stranger("top_k", "it keeps the 4 G most likely tokens", GOES_ON, "", "answer top_k"),
    Stranger("top_logprobs", "it asks for the 4 G most likely tokens", GOES_ON, "", "answer top_logprobs"),
    Stranger("contradictory", "it samples, with the fields of a splice", GOES_ON, "", "answer contradictory"),
    Stranger("both", "it splices, with the fields of a row", "result", "backtrack", "answer both"),
    Stranger("sparse_nan", "a bias is NaN", "result", "NaN", "answer sparse_nan"),
    Stranger("sparse_inf", "a bias is infinite", "result", "inf", "answer sparse_inf"),
    Stranger(
        "sparse_token",
        "a bias is for a token outside the vocabulary",
        "result",
        "sparse token",
        "answer sparse_token",
    ),
    Stranger("sparse_many", "a hundred thousand biases", "result", "100000 sparse", "answer sparse_many"),
    Stranger(
        "sparse_wrap",
        "so many biases that their bytes overflow",
        "result",
        "sparse entries",
        "answer sparse_wrap",
    ),
    Stranger("sparse_default", "the default bias is NaN", "result", "row_default", "answer sparse_default"),
    Stranger(
        "sparse_nothing", "no biases, all other tokens forbidden", "empty_mask", "", "answer sparse_nothing"
    ),
    Stranger("sparse_outside", "biases outside its memory", "result", "row:", "answer sparse_outside"),
    Stranger("dense_nan", "a dense bias is NaN", "result", "NaN", "answer dense_nan"),
    Stranger("dense_inf", "a dense bias is infinite", "result", "inf", "answer dense_inf"),
    Stranger("dense_nothing", "dense biases forbid everything", "empty_mask", "", "answer dense_nothing"),
    Stranger("dense_short", "dense biases for one token", "result", "row_len is 1", "answer dense_short"),
    Stranger("dense_outside", "dense biases outside its memory", "result", "row:", "answer dense_outside"),
    Stranger(
        "dense_unaligned", "dense biases at an odd address", f"{GOES_ON} result", "", "answer dense_unaligned"
    ),
    # ---- splices
    Stranger("splice_many", "forces 4097 tokens at once", "result", "4097 ff_tokens", "splice many"),
    Stranger(
        "splice_wrap", "forces so many tokens that their bytes overflow", "result", "ff_tokens", "splice wrap"
    ),
    Stranger("splice_most", "forces 4096 tokens in every step", GOES_ON + " " + STOPS, "", "splice most"),
    Stranger("splice_outside", "forces tokens outside its memory", "result", "ff_tokens:", "splice outside"),
    Stranger("splice_token", "forces a token outside the vocabulary", "result", "4294967295", "splice token"),
    Stranger("splice_unaligned", "forces tokens at an odd address", GOES_ON, "", "splice unaligned"),
    Stranger("backtrack", "backtracks 4 Gi tokens", "result", "backtrack is", "splice back_all"),
    Stranger(
        "backtrack_storm",
        "backtracks a thousand tokens and forces others",
        GOES_ON,
        "",
        "splice back_storm",
    ),
    Stranger("splice_nothing", "splices nothing forever", "livelock", "8 rounds", "splice nothing"),
    # ---- forks and suspending
    Stranger("fork_bomb", "forks in every step, and so do its children", "fork_limit", "16", "fork always"),
    Stranger("fork_4g", "forks into 4 Gi sequences", "fork_limit", "4294967295", "fork once 4294967295"),
    Stranger("fork_17", "forks into one more than allowed", "fork_limit", "17", "fork once 17"),
    Stranger("fork_16", "forks into as many as allowed", GOES_ON, "", "fork once 16"),
    Stranger("fork_0", "forks into none", STOPS, "", "fork once 0"),
    Stranger(
        "fork_heavy",
        "forks in each step with 60 MB changed",
        f"{GOES_ON} time_limit owner_limit",  # children that are late still hold their memory
        "",
        "fork heavy 60",
    ),
    Stranger("fork_relay", "its child replaces it, forever", "livelock", "8 rounds", "fork relay"),
    Stranger("children_trap", "all of its children trap", "trap", _MID, "fork children_trap"),
    Stranger("suspend", "is suspended forever", "deadlock", "5 rounds", "fork suspend"),
    Stranger(
        "suspend_write", "is suspended, and writes variables", "livelock", "8 rounds", "fork suspend_write"
    ),
    Stranger("suspend_all", "forks into eight that are suspended", "deadlock", "all 8", "fork suspend_all"),
    Stranger(
        "suspend_turns", "two forks, one of which is always suspended", GOES_ON, "", "fork suspend_turns"
    ),
    Stranger("wait", "a fork waits for another one that does nothing", "livelock", "8 rounds", "fork wait"),
    # ---- snapshots
    Stranger(
        "snapshots", "eight arguments, 20 MB of snapshot each", GOES_ON, "", "init snapshot 20", times=8
    ),
    *(
        Stranger(
            f"slow_{where}",
            f"ten arguments that use a part of the time of {name} each",
            GOES_ON,
            "",
            f"{where} work 8000",
            times=10,
        )
        for where, name in _CALLBACKS.items()
        if where in ("start", "arg", "init", "prompt")
    ),
    Stranger("many_arguments", "fifty arguments", GOES_ON, "", "mid ask_for_nothing", times=50),
    # ---- memory of all requests together
    Stranger(
        "memory_together",
        "ten requests fill 60 MB each",
        "owner_limit time_limit",
        "",
        "mid touch_memory",
        times=10,
    ),
    Stranger(
        "snapshots_together", "twenty arguments, 40 MB each", "owner_limit", "", "init snapshot 40", times=20
    ),
    Stranger(
        "forks_together",
        "ten requests fork with 60 MB changed",
        "owner_limit time_limit",
        "",
        "fork heavy 60",
        times=10,
    ),
    *ODD_MODULES,
    *REFUSED_MODULES,
)
