//! yesno in Zig: the model answers "Yes" or "No" and stops. Equivalent to ../yesno/yesno.c.

const std = @import("std");
const aici = @import("aici");

comptime {
    aici.controller();
}

const max_tokens = 8;

/// One of the possible answers, as tokens.
const Answer = struct {
    tokens: [max_tokens]u32 = undefined,
    count: usize = 0,

    fn init(text: []const u8) Answer {
        var answer = Answer{};
        answer.count = aici.tokenize(text.ptr, text.len);
        if (answer.count > max_tokens) fail("the vocabulary cannot spell the answers in a few tokens");
        _ = aici.read(aici.TOKENIZED, 0, &answer.tokens, @sizeOf(@TypeOf(answer.tokens)));
        return answer;
    }
};

var arg = aici.StepArg{};
var result = aici.MidResult{};
var answers: [2]Answer = undefined;
var mask: []u32 = &.{};

/// The answer that the model has chosen, and the number of its tokens so far.
var chosen: ?*const Answer = null;
var position: usize = 0;

fn fail(message: []const u8) noreturn {
    aici.fail(message.ptr, message.len);
}

export fn aici_arg() *aici.StepArg {
    return &arg;
}

export fn aici_init(arg_len: u32) i32 {
    if (arg_len != 0) fail("yesno takes no argument");
    mask = std.heap.wasm_allocator.alloc(u32, aici.vocabulary().mask_words) catch fail("out of memory");
    @memset(mask, 0);
    for (&answers, [_][]const u8{ "Yes", "No" }) |*answer, text| {
        answer.* = Answer.init(text);
        const first = answer.tokens[0];
        mask[first >> 5] |= @as(u32, 1) << @truncate(first);
    }
    return 0;
}

fn takeNote(token: u32) void {
    const answer = chosen orelse if (token == answers[0].tokens[0]) &answers[0] else &answers[1];
    if (position >= answer.count or token != answer.tokens[position])
        fail("a token was appended that belongs to neither answer");
    chosen = answer;
    position += 1;
}

export fn aici_mid_process() *aici.MidResult {
    for (arg.tokens[0..@min(arg.num_tokens, aici.INLINE_TOKENS)]) |token| takeNote(token);
    result.verb = aici.SAMPLE;
    if (chosen) |answer| {
        if (position < answer.count) {
            result.row_kind = aici.ROW_TOKEN;
            result.row = answer.tokens[position];
        } else {
            result.verb = aici.STOP;
        }
    } else {
        result.row_kind = aici.ROW_BITMASK;
        result.row = aici.address(mask.ptr);
        result.row_len = @intCast(mask.len);
    }
    return &result;
}
