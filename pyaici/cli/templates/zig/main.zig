//! NAME: the model writes without the letters of the argument ("e", if there is none).
//!
//! Try: aici run NAME.wasm --prompt "Tell me a story" --arg aeiou
//!
//! aici.h, and docs/abi.md of aici, say what every call and field means.

const std = @import("std");
const aici = @import("aici");

comptime {
    aici.controller();
}

// What a sequence remembers lives in ordinary variables: every fork gets its own copy of the memory.
var arg: aici.StepArg = .{};
var result: aici.MidResult = .{ .verb = aici.SAMPLE, .row_kind = aici.ROW_BITMASK };

export fn aici_arg() *aici.StepArg {
    return &arg;
}

/// Once per argument, before there is a prompt. The tokens that may be used are found here.
export fn aici_init(arg_len: u32) u32 {
    var buffer: [256]u8 = undefined;
    if (arg_len > buffer.len) fail("these are too many letters");
    _ = aici.read(aici.ARG, 0, &buffer, arg_len);
    const letters: []const u8 = if (arg_len > 0) buffer[0..arg_len] else "e";

    const vocabulary = aici.vocabulary();
    const offsets = aici.section(u32, vocabulary, vocabulary.token_offsets);
    const all_bytes = aici.section(u8, vocabulary, vocabulary.token_bytes);
    const eos = aici.section(u32, vocabulary, vocabulary.eos);
    const text = aici.section(u32, vocabulary, vocabulary.text_mask); // the tokens that are text
    const mask = std.heap.wasm_allocator.alloc(u32, vocabulary.mask_words) catch fail("out of memory");
    @memset(mask, 0);
    var count: u32 = 0;
    for (0..vocabulary.vocab_size) |token| {
        const bytes = all_bytes[offsets[token]..offsets[token + 1]];
        if (text[token >> 5] & bit(token) == 0 or hasOneOf(bytes, letters)) continue;
        mask[token >> 5] |= bit(token);
        count += 1;
    }
    if (count == 0) fail("no token is left without these letters");
    for (eos[0..vocabulary.num_eos]) |token| mask[token >> 5] |= bit(token); // the text may end anywhere

    var line: [80]u8 = undefined;
    const sizes = .{ count + vocabulary.num_eos, vocabulary.vocab_size };
    aici.log(std.fmt.bufPrint(&line, "{d} of {d} tokens are allowed\n", sizes) catch unreachable);
    result.row = aici.address(mask.ptr);
    result.row_len = vocabulary.mask_words;
    return 0;
}

/// Once per token, while the model computes the logits for the next one.
export fn aici_mid_process() *aici.MidResult {
    return &result;
}

fn hasOneOf(text: []const u8, letters: []const u8) bool {
    for (text) |byte| for (letters) |letter| {
        if (std.ascii.toLower(byte) == std.ascii.toLower(letter)) return true;
    };
    return false;
}

fn bit(token: usize) u32 {
    return @as(u32, 1) << @truncate(token);
}

fn fail(message: []const u8) noreturn {
    aici.fail(message.ptr, message.len);
}
