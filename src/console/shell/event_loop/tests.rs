//! What the loop does outside of the model.

use crossbeam_channel::bounded;
use signal_hook::consts::SIGHUP;

use crossbeam_channel::unbounded;

use super::*;

#[test]
fn signal_ends_the_wait() {
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
        let mut output = Vec::new();
        assert!(!wait_for_end(&run, "^C quits at once", &input, &mut output));
        let output = String::from_utf8(output).unwrap();
        assert!(output.contains("^C quits at once"), "{output}");
    }
}

#[test]
fn finished_run_ends_the_wait() {
    let (going, run) = bounded(0);
    let (sender, input) = unbounded();
    drop(going);
    assert!(wait_for_end(&run, "", &input, &mut Vec::new()));
    // The signal reader has ended.
    drop(sender);
    assert!(wait_for_end(&run, "", &input, &mut Vec::new()));
}

#[test]
fn output_of_pager_that_ends_at_once_is_kept() {
    let mut preferences = Preferences::default();
    let almost = MIN_READING_TIME - Duration::from_millis(1);
    assert!(is_output_kept(&preferences, Duration::ZERO));
    assert!(is_output_kept(&preferences, almost));
    assert!(!is_output_kept(&preferences, MIN_READING_TIME));
    preferences.has_pager_pause = true;
    assert!(is_output_kept(&preferences, Duration::from_secs(3600)));
}
