//! What the loop does outside of the model.

use crossbeam_channel::bounded;
use signal_hook::consts::SIGHUP;

use super::*;

#[test]
fn a_run_is_waited_for_until_a_signal_ends_that() {
    for signal in [SIGINT, SIGTERM] {
        let (_going, run) = bounded(0);
        let (sender, input) = unbounded();
        for input in [
            InputEvent::TerminalLost,
            InputEvent::Signal(SIGHUP),
            InputEvent::Terminal(TerminalEvent::FocusLost),
            InputEvent::Signal(signal),
        ] {
            sender.send(input).unwrap();
        }
        let mut said = Vec::new();
        assert!(!wait_for_run(&run, &input, &mut said));
        let said = String::from_utf8(said).unwrap();
        assert!(said.contains("^C leaves it at once"), "{said}");
    }
}

#[test]
fn a_run_that_ends_ends_the_wait() {
    let (going, run) = bounded(0);
    let (sender, input) = unbounded();
    drop(going);
    assert!(wait_for_run(&run, &input, &mut Vec::new()));
    // Nobody is left to send a signal.
    drop(sender);
    assert!(wait_for_run(&run, &input, &mut Vec::new()));
}
