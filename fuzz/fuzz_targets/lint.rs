#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| memory_shepherd_fuzz::targets::lint_text(bytes));
