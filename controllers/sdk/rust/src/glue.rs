//! Connects the exports of a module with its controller. Used by `export!`, not by controllers.

use std::cell::{Cell, RefCell};
use std::fmt::Display;

use crate::abi::{self, StepArg};
use crate::{host, step, AiciCtrl, MidResult, PostResult, PreResult};

/// The state of a module. There is one, since an instance has one thread and belongs to one sequence.
struct Instance {
    /// The host writes to it between calls.
    arg: Cell<StepArg>,
    controller: RefCell<Option<Box<dyn AiciCtrl>>>,
    /// Owns the data to which `raw_mid` points until the host has read it.
    mid: RefCell<MidResult>,
    raw_mid: Cell<abi::MidResult>,
    /// The same for `raw_pre`.
    pre: RefCell<(PreResult, Vec<abi::Wait>)>,
    raw_pre: Cell<abi::PreResult>,
    raw_post: Cell<abi::PostResult>,
}

thread_local! {
    static INSTANCE: Instance = const {
        Instance {
            arg: Cell::new(StepArg::NONE),
            controller: RefCell::new(None),
            mid: RefCell::new(MidResult::Stop),
            raw_mid: Cell::new(abi::MidResult::STOP),
            pre: RefCell::new((PreResult::Stop, Vec::new())),
            raw_pre: Cell::new(abi::PreResult::STOP),
            raw_post: Cell::new(abi::PostResult::STOP),
        }
    };
}

pub(crate) fn step_arg() -> StepArg {
    INSTANCE.with(|instance| instance.arg.get())
}

/// `aici_arg`: the first call of a new instance.
pub fn arg() -> *mut StepArg {
    // otherwise a panic would be a trap without a message
    #[cfg(target_arch = "wasm32")]
    std::panic::set_hook(Box::new(|panic| host::fail(&panic.to_string())));
    INSTANCE.with(|instance| instance.arg.as_ptr())
}

/// `aici_init`: creates the controller.
pub fn init<C: AiciCtrl + 'static, E: Display>(
    arg_len: u32,
    make: impl FnOnce(&[u8]) -> Result<C, E>,
) -> u32 {
    match make(&host::read_bytes(abi::ARG, arg_len)) {
        Ok(controller) => {
            INSTANCE.with(|instance| *instance.controller.borrow_mut() = Some(Box::new(controller)))
        }
        Err(error) => host::fail(&error.to_string()),
    }
    0
}

/// `aici_warm`.
pub fn warm() -> u32 {
    u32::from(with_controller(|controller| controller.warm()))
}

/// `aici_init_prompt`.
pub fn init_prompt(num_tokens: u32) -> u32 {
    with_controller(|controller| controller.init_prompt(&host::read_words(abi::PROMPT, num_tokens)));
    0
}

/// `aici_pre_process`.
pub fn pre_process() -> *const abi::PreResult {
    let result: PreResult = with_controller(|controller| controller.pre_process());
    INSTANCE.with(|instance| {
        let (kept, waits) = &mut *instance.pre.borrow_mut();
        *kept = result;
        instance.raw_pre.set(kept.raw(waits));
        instance.raw_pre.as_ptr()
    })
}

/// `aici_mid_process`.
pub fn mid_process() -> *const abi::MidResult {
    let result = with_controller(|controller| controller.mid_process(&step().fork_group()));
    INSTANCE.with(|instance| {
        *instance.mid.borrow_mut() = result;
        instance.raw_mid.set(instance.mid.borrow().raw());
        instance.raw_mid.as_ptr()
    })
}

/// `aici_post_process`.
pub fn post_process() -> *const abi::PostResult {
    let result: PostResult = with_controller(|controller| controller.post_process(&step().tokens()));
    INSTANCE.with(|instance| {
        instance.raw_post.set(result.raw());
        instance.raw_post.as_ptr()
    })
}

fn with_controller<T>(call: impl FnOnce(&mut dyn AiciCtrl) -> T) -> T {
    INSTANCE.with(|instance| match instance.controller.borrow_mut().as_deref_mut() {
        Some(controller) => call(controller),
        None => panic!("aici_init has not been called"),
    })
}

/// Exports a controller; use it once in a crate. Takes a function that makes the controller from its argument, or
/// returns an error that refuses the argument, and the names of the callbacks that the host calls; without names,
/// all of them except `warm`.
///
/// ```text
/// aici::export!(Shout::new);                            // simple, but the engine waits for post and pre
/// aici::export!(Shout::new, mid_process);               // costs no time between tokens
/// aici::export!(Shout::new, init_prompt, mid_process);
/// aici::export!(Shout::new, warm, mid_process);         // fills tables ahead
/// ```
///
/// The function is called once per argument, before any prompt, and has about 1000 ms. All sequences with the same
/// argument start from the resulting memory.
#[macro_export]
macro_rules! export {
    ($make:expr) => {
        $crate::export!($make, init_prompt, pre_process, mid_process, post_process);
    };
    ($make:expr, $($callback:ident),+ $(,)?) => {
        #[no_mangle]
        pub extern "C" fn aici_abi_v1() {}
        #[no_mangle]
        pub extern "C" fn aici_arg() -> *mut $crate::abi::StepArg {
            $crate::glue::arg()
        }
        #[no_mangle]
        pub extern "C" fn aici_init(arg_len: u32) -> u32 {
            $crate::glue::init(arg_len, $make)
        }
        $($crate::export_callback!($callback);)+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! export_callback {
    (warm) => {
        #[no_mangle]
        pub extern "C" fn aici_warm() -> u32 {
            $crate::glue::warm()
        }
    };
    (init_prompt) => {
        #[no_mangle]
        pub extern "C" fn aici_init_prompt(num_tokens: u32) -> u32 {
            $crate::glue::init_prompt(num_tokens)
        }
    };
    (pre_process) => {
        #[no_mangle]
        pub extern "C" fn aici_pre_process() -> *const $crate::abi::PreResult {
            $crate::glue::pre_process()
        }
    };
    (mid_process) => {
        #[no_mangle]
        pub extern "C" fn aici_mid_process() -> *const $crate::abi::MidResult {
            $crate::glue::mid_process()
        }
    };
    (post_process) => {
        #[no_mangle]
        pub extern "C" fn aici_post_process() -> *const $crate::abi::PostResult {
            $crate::glue::post_process()
        }
    };
}
