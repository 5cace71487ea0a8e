//! aici.h in Zig: the same names without the prefix AICI_ or aici_. aici.h documents them.
//!
//! A controller begins with
//!
//!     const aici = @import("aici");
//!     comptime {
//!         aici.controller();
//!     }
//!
//! and exports functions with the full names: `export fn aici_arg() *aici.StepArg` and so on.

// verbs
pub const STOP: u32 = 0;
pub const CONTINUE: u32 = 1;
pub const SUSPEND: u32 = 2;
pub const FORK: u32 = 3;
pub const SAMPLE: u32 = 4;
pub const SPLICE: u32 = 5;
pub const LOOK: u32 = 8;
pub const FOLLOW: u32 = 9;

// rows
pub const ROW_ALL: u32 = 0;
pub const ROW_BITMASK: u32 = 1;
pub const ROW_TOKEN: u32 = 2;
pub const ROW_SPARSE: u32 = 3;
pub const ROW_DENSE: u32 = 4;
pub const ROW_SAME: u32 = 5;

pub const Bias = extern struct { token: u32, bias: f32 };

// the argument of a step
pub const INLINE_TOKENS = 16;
pub const INLINE_GROUP = 16;

pub const ARG_SAMPLED: u32 = 1;
pub const ARG_HAS_LOGPROB: u32 = 2;
pub const ARG_HURRY: u32 = 4;
pub const ARG_LOOKED: u32 = 8;

pub const StepArg = extern struct {
    size: u32 = @sizeOf(StepArg),
    seq_id: u32 = 0,
    step: u32 = 0,
    flags: u32 = 0,
    backtrack: u32 = 0,
    num_tokens: u32 = 0,
    logprob: f32 = 0,
    allowed_mass: f32 = 0,
    num_top: u32 = 0,
    num_group: u32 = 0,
    tokens: [INLINE_TOKENS]u32 = @splat(0),
    group: [INLINE_GROUP]u32 = @splat(0),
};

pub const Top = extern struct { token: u32, logprob: f32 };

// results
pub const Wait = extern struct { name: u32, name_len: u32, version: u32 };

pub const PreResult = extern struct {
    size: u32 = @sizeOf(PreResult),
    verb: u32 = CONTINUE,
    num_forks: u32 = 0,
    waits: u32 = 0,
    num_waits: u32 = 0,
    wait_ms: u32 = 0,
};

pub const PostResult = extern struct {
    size: u32 = @sizeOf(PostResult),
    verb: u32 = CONTINUE,
};

pub const FoundResult = extern struct {
    size: u32 = @sizeOf(FoundResult),
    data: u32 = 0,
    data_len: u32 = 0,
};

pub const MID_HOLD_END: u32 = 1;
pub const MID_SKIP_PRE: u32 = 2;
pub const MID_SKIP_POST: u32 = 4;
pub const MID_DRAFTS: u32 = 8;
pub const MID_OWN: u32 = 16;

/// `row` and `ff_tokens` are addresses (or the token of ROW_TOKEN): see `address`.
pub const MidResult = extern struct {
    size: u32 = @sizeOf(MidResult),
    verb: u32 = SAMPLE,
    row_kind: u32 = ROW_ALL,
    row: u32 = 0,
    row_len: u32 = 0,
    row_default: f32 = 0,
    temperature: f32 = 0,
    top_logprobs: u32 = 0,
    backtrack: u32 = 0,
    ff_tokens: u32 = 0,
    num_ff_tokens: u32 = 0,
    flags: u32 = 0,
    top_p: f32 = 0,
    top_k: u32 = 0,
    min_p: f32 = 0,
    typical_p: f32 = 0,
    top_n_sigma: f32 = 0,
};

// imports
pub const ARG: u32 = 0;
pub const PROMPT: u32 = 1;
pub const TOKENS: u32 = 2;
pub const GROUP: u32 = 3;
pub const TOP: u32 = 4;
pub const VALUE: u32 = 5;
pub const TOKENIZED: u32 = 6;
pub const FOUND: u32 = 7;
pub const LOGITS: u32 = 8;

pub extern "aici" fn read(source: u32, offset: u32, dst: ?*anyopaque, len: u32) u32;
pub const VOCABULARY_MAGIC: u32 = 0x56434941;
pub const VOCABULARY_VERSION: u32 = 1;

/// The header of the vocabulary image. From `nodes` on, the fields are offsets of sections: see `section`.
pub const VocabularyHeader = extern struct {
    magic: u32,
    version: u32,
    total_size: u32,
    vocab_size: u32,
    mask_words: u32,
    mask_stride: u32,
    num_nodes: u32,
    num_ordered: u32,
    num_eos: u32,
    num_duplicates: u32,
    num_long: u32,
    max_token_len: u32,
    num_classes: u32,
    bos: u32,
    pad: u32,
    unk: u32,
    nodes: u32,
    order: u32,
    class_masks: u32,
    text_mask: u32,
    token_offsets: u32,
    token_bytes: u32,
    flags: u32,
    eos: u32,
    byte_class: u32,
    duplicates: u32,
    long_tokens: u32,
    num_slices: u32,
    slices: u32,
    slice_masks: u32,
    turns: u32,
    num_turns: u32,
};

const host = struct {
    extern "aici" fn vocabulary() *const VocabularyHeader;
};

var mapped: ?*const VocabularyHeader = null;

/// Returns the header of the vocabulary image. The first call maps the image; later calls do not call the host.
pub fn vocabulary() *const VocabularyHeader {
    return mapped orelse {
        const header = host.vocabulary();
        mapped = header;
        return header;
    };
}

pub const NO_TOKENS: u32 = 0xffffffff;
pub extern "aici" fn tokenize(src: [*]const u8, len: u32) u32;

pub const ANY_VERSION: u32 = 0xffffffff;
pub const SET: u32 = 0;
pub const APPEND: u32 = 1;

pub extern "aici" fn var_get(name: [*]const u8, name_len: u32, len: ?*u32) u32;
pub extern "aici" fn var_write(name: [*]const u8, name_len: u32, value: [*]const u8, value_len: u32, op: u32, when_version: u32) u32;

pub extern "aici" fn call(name: [*]const u8, name_len: u32, arguments: [*]const u8, arguments_len: u32) u32;

pub const CAP_FORK: u32 = 1;
pub const CAP_BACKTRACK: u32 = 2;
pub const CAP_FF_TOKENS: u32 = 3;
pub const CAP_SUSPEND: u32 = 4;
pub const CAP_LOGPROBS: u32 = 5;
pub const CAP_TOP_LOGPROBS: u32 = 6;
pub const CAP_DENSE: u32 = 7;
pub const CAP_TOKENIZER: u32 = 8;
pub const CAP_MAX_FORKS: u32 = 9;
pub const CAP_HOLD_END: u32 = 10;
pub const CAP_CALLS: u32 = 11;
pub const CAP_LOOK: u32 = 12;
pub const CAP_FOLLOW: u32 = 13;
pub const CAP_DRAFTS: u32 = 14;

pub extern "aici" fn capability(id: u32) u32;
pub extern "aici" fn stop() noreturn;
pub extern "aici" fn fail(message: [*]const u8, len: u32) noreturn;

// substitutes for C's macros, casts and printf

fn marker() callconv(.c) void {}

/// Exports the marker of the ABI version. Call it once per controller, at comptime.
pub fn controller() void {
    @export(&marker, .{ .name = "aici_abi_v1" });
}

/// Returns the address of an array or struct, for the fields of a result.
pub fn address(pointer: *const anyopaque) u32 {
    return @intCast(@intFromPtr(pointer));
}

/// Returns the section of the vocabulary image at this offset, such as `header.text_mask`, as an array of `T`.
pub fn section(comptime T: type, header: *const VocabularyHeader, offset: u32) [*]const T {
    return @ptrFromInt(address(header) + offset);
}

const Piece = extern struct { start: [*]const u8, len: usize };
extern "wasi_snapshot_preview1" fn fd_write(fd: i32, pieces: [*]const Piece, count: usize, written: *usize) u16;

/// Writes to the log that the user sees.
pub fn log(text: []const u8) void {
    const piece = [1]Piece{.{ .start = text.ptr, .len = text.len }};
    var written: usize = 0;
    _ = fd_write(1, &piece, 1, &written);
}
