//! NAME: begins the answer with a fixed text, lets the model go on, and ends the answer after some tokens.
//!
//! aici.h, and docs/abi.md of aici, say what every call and field means.

const aici = @import("aici");

comptime {
    aici.controller();
}

const max_free_tokens = 40;

// What a sequence remembers lives in ordinary variables: every fork gets its own copy of the memory.
var text_buffer: [256]u8 = undefined;
var text: []const u8 = "Let me think.";
var forced: [256]u32 = undefined;
var begun = false;
var free_tokens: u32 = 0;

var arg: aici.StepArg = .{};
var result: aici.MidResult = .{};

export fn aici_arg() *aici.StepArg {
    return &arg;
}

/// Once per argument (`aici run --arg TEXT`), before there is a prompt. Not 0 refuses the argument.
export fn aici_init(arg_len: u32) u32 {
    if (arg_len > text_buffer.len) {
        const message = "the text is longer than 256 bytes";
        aici.fail(message, message.len);
    }
    if (arg_len > 0) {
        _ = aici.read(aici.ARG, 0, &text_buffer, arg_len);
        text = text_buffer[0..arg_len];
    }
    return 0;
}

/// Once per token, while the model computes the logits for the next one.
export fn aici_mid_process() *aici.MidResult {
    if (!begun) {
        begun = true;
        aici.log("the answer begins with: ");
        aici.log(text);
        aici.log("\n");
        const count = aici.tokenize(text.ptr, text.len); // never more tokens than bytes
        if (count == aici.NO_TOKENS) {
            const message = "this model's tokenizer cannot spell the text";
            aici.fail(message, message.len);
        }
        _ = aici.read(aici.TOKENIZED, 0, &forced, @sizeOf(@TypeOf(forced)));
        result = .{ .verb = aici.SPLICE, .ff_tokens = aici.address(&forced), .num_ff_tokens = count };
    } else if (free_tokens < max_free_tokens) {
        free_tokens += 1;
        result = .{ .verb = aici.SAMPLE, .row_kind = aici.ROW_ALL };
    } else {
        result = .{ .verb = aici.STOP };
    }
    return &result;
}
