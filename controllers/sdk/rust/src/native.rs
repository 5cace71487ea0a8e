//! Replaces the runtime's functions in `cargo test`, where there is no runtime.

#![allow(clippy::missing_safety_doc)]

use std::cell::Cell;

use crate::abi::VocabularyHeader;

thread_local! {
    static IMAGE: Cell<Option<&'static [u32]>> = const { Cell::new(None) };
}

/// Sets the vocabulary for the tests of this thread: an image in the format of docs/vocabulary.md of aici.
///
/// # Panics
/// If the length is not a multiple of 4.
pub fn use_vocabulary(image: &[u8]) {
    assert!(image.len() % 4 == 0, "a vocabulary image has a multiple of 4 bytes");
    let words: Vec<u32> =
        image.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().expect("four bytes"))).collect();
    IMAGE.set(Some(words.leak()));
}

pub(crate) unsafe fn vocabulary() -> *const VocabularyHeader {
    IMAGE
        .get()
        .expect("outside the runtime there is no vocabulary: see aici::testing::use_vocabulary")
        .as_ptr()
        .cast()
}

pub(crate) unsafe fn fd_write(
    _fd: u32,
    pieces: *const [usize; 2],
    _count: usize,
    _written: *mut usize,
) -> u32 {
    let [address, length] = *pieces;
    print!("{}", String::from_utf8_lossy(std::slice::from_raw_parts(address as *const u8, length)));
    0
}

pub(crate) unsafe fn stop() -> ! {
    panic!("the controller stopped its sequence");
}

pub(crate) unsafe fn fail(message: *const u8, len: u32) -> ! {
    panic!("{}", String::from_utf8_lossy(std::slice::from_raw_parts(message, len as usize)));
}

fn missing(what: &str) -> ! {
    panic!("{what} needs the runtime: play the controller with pyaici.testing.Playground");
}

pub(crate) unsafe fn read(_source: u32, _offset: u32, _dst: *mut u8, _len: u32) -> u32 {
    missing("reading what the host has")
}

pub(crate) unsafe fn tokenize(_src: *const u8, _len: u32) -> u32 {
    missing("tokenize")
}

pub(crate) unsafe fn var_get(_name: *const u8, _name_len: u32, _len: *mut u32) -> u32 {
    missing("reading a variable")
}

pub(crate) unsafe fn var_write(_: *const u8, _: u32, _: *const u8, _: u32, _op: u32, _version: u32) -> u32 {
    missing("writing a variable")
}

pub(crate) unsafe fn call(_: *const u8, _: u32, _: *const u8, _: u32) -> u32 {
    missing("a call")
}

pub(crate) unsafe fn capability(_id: u32) -> u32 {
    missing("asking for a capability")
}
