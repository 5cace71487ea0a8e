//! A recognizer whose automaton is the controller argument, walked in every way that the crate offers.
//!
//! Argument: the way (1 byte), an unused byte, for each state a byte of flags (1 << SpecialToken) and
//! 256 bytes of next states. State 0 is dead, state 1 is the start.

use std::rc::Rc;

use aici::{
    AiciCtrl, AiciRecognizer, MidResult, Recognizer, SeqId, Signature, SpecialToken, StackRecognizer,
};
use aici::{FunctionalRecognizer, TokenSet};

#[derive(Clone)]
struct Table {
    rows: Rc<[u8]>,
    signatures: Rc<[Signature]>,
}

impl Table {
    fn new(rows: &[u8], has_signatures: bool) -> Self {
        let signature = |(state, row): (usize, &[u8])| match has_signatures {
            true => aici::vocabulary().kinds(|byte| row[1 + byte as usize] as usize == state),
            false => 0,
        };
        Self { rows: rows.into(), signatures: rows.chunks(257).enumerate().map(signature).collect() }
    }
}

impl FunctionalRecognizer<u8> for Table {
    fn initial(&self) -> u8 {
        1
    }
    fn append(&self, state: u8, byte: u8) -> u8 {
        self.rows[state as usize * 257 + 1 + byte as usize]
    }
    fn byte_allowed(&self, state: u8, byte: u8) -> bool {
        self.append(state, byte) != 0
    }
    fn special_allowed(&self, state: u8, token: SpecialToken) -> bool {
        self.rows[state as usize * 257] >> token as u32 & 1 != 0
    }
    fn loop_signature(&self, state: u8) -> Signature {
        self.signatures[state as usize]
    }
}

/// A byte stack without optional functions.
struct Plain {
    table: Table,
    stack: Vec<u8>,
}

impl Recognizer for Plain {
    fn push_byte(&mut self, byte: u8) {
        self.stack.push(self.table.append(*self.stack.last().unwrap(), byte));
    }
    fn pop_bytes(&mut self, num: usize) {
        self.stack.truncate(self.stack.len() - num);
    }
    fn collapse(&mut self) {
        self.stack = vec![*self.stack.last().unwrap()];
    }
    fn byte_allowed(&mut self, byte: u8) -> bool {
        self.table.byte_allowed(*self.stack.last().unwrap(), byte)
    }
    fn special_allowed(&mut self, token: SpecialToken) -> bool {
        self.table.special_allowed(*self.stack.last().unwrap(), token)
    }
    fn trie_finished(&mut self) {
        assert_eq!(self.stack.len(), 1, "the stack is not as before");
    }
}

/// Allows what the recognizer allows, followed by any text.
struct Walker(Box<dyn Recognizer>);

impl AiciCtrl for Walker {
    fn mid_process(&mut self, _fork_group: &[SeqId]) -> MidResult {
        for byte in aici::vocabulary().decode(&aici::step().tokens()) {
            self.0.push_byte(byte);
        }
        self.0.collapse();
        let allowed: TokenSet = aici::vocabulary().compute_bias(&mut *self.0);
        MidResult::sample(allowed)
    }
}

/// `AiciRecognizer`, or one of the walks.
enum Tester {
    Recognizer(AiciRecognizer<StackRecognizer<u8, Table>>),
    Walker(Walker),
}

impl Tester {
    fn new(argument: &[u8]) -> Result<Self, String> {
        aici::vocabulary(); // maps the vocabulary here, where time is not critical
        let table = Table::new(&argument[2..], argument[0] != 0);
        Ok(match argument[0] {
            0 | 1 => Tester::Walker(Walker(Box::new(StackRecognizer::new(table)))),
            2 => Tester::Walker(Walker(Box::new(Plain { table, stack: vec![1] }))),
            3 => Tester::Recognizer(AiciRecognizer::new(table.into())),
            way => return Err(format!("there is no way {way}")),
        })
    }
}

impl AiciCtrl for Tester {
    fn mid_process(&mut self, fork_group: &[SeqId]) -> MidResult {
        match self {
            Tester::Recognizer(controller) => controller.mid_process(fork_group),
            Tester::Walker(controller) => controller.mid_process(fork_group),
        }
    }
}

aici::export!(Tester::new, mid_process);
