//! What other programs do to the file while it is open.

use memory_shepherd::engine::State;

use super::*;
use crate::engine_samples::observation_of;

fn tampered() -> OpenedBaseline {
    OpenedBaseline {
        seal: SealMatch::Mismatch("it does not match".to_string()),
        ..opened(TEXT)
    }
}

fn check(console: &mut TestConsole, found: Result<OpenedBaseline, BaselineFile>) {
    let reply = Msg::OpenFileChecked(NAME.to_string(), found.map(Box::new));
    console.send(reply);
}

fn header(console: &TestConsole) -> String {
    let width = usize::from(console.model.size.0);
    console.screen_text().chars().take(width).collect()
}

#[test]
fn seal_of_another_process_makes_the_text_editable() {
    let mut console = fleet_of_four();
    console.open_editor(tampered());
    assert!(header(&console).contains("TAMPERED"));
    // The agents are not blocked any more.
    let effects = console.observe(vec![observation_of("charlie", State::Clean)]);
    assert!(
        effects.contains(&Effect::CheckOpenFile(NAME.to_string())),
        "{effects:?}"
    );
    check(&mut console, Ok(opened(TEXT)));
    assert!(!header(&console).contains("TAMPERED") && header(&console).contains("sealed"));
    console.press("x");
    assert_eq!(console.edited_text(), &TEXT[1..]);
    // And back: an unsaved text stays editable, and its save asks.
    check(&mut console, Ok(tampered()));
    assert!(header(&console).contains("TAMPERED"));
    assert_eq!(console.editor().read_only, None);
    console.press("u");
    check(&mut console, Ok(tampered()));
    assert_eq!(
        console.editor().read_only,
        None,
        "nothing has changed since"
    );
    check(&mut console, Ok(opened(TEXT)));
    check(&mut console, Ok(tampered()));
    assert!(console.editor().read_only.is_some());
}

#[test]
fn file_is_looked_at_while_nothing_happens() {
    let mut console = editing(TEXT);
    let check = Effect::CheckOpenFile(NAME.to_string());
    assert_eq!(console.advance(SECOND * 19), []);
    assert_eq!(console.advance(SECOND), std::slice::from_ref(&check));
    assert_eq!(console.advance(SECOND * 20), [check]);
    // Another screen does not show it.
    console.press("-");
    assert_eq!(console.advance(SECOND * 60), []);
}

#[test]
fn header_says_what_became_of_the_file() {
    let why = "it is a directory".to_string();
    for (found, word) in [
        (Err(BaselineFile::Absent), "FILE GONE"),
        (Err(BaselineFile::Unreadable(why)), "FILE UNREADABLE"),
        (Ok(opened("other\n")), "FILE CHANGED"),
    ] {
        let mut console = editing(TEXT);
        check(&mut console, found);
        assert!(header(&console).contains(word), "{}", header(&console));
        assert!(!header(&console).contains("sealed"));
        assert_eq!(console.edited_text(), TEXT);
        check(&mut console, Ok(opened(TEXT)));
        assert!(header(&console).contains("sealed"), "{}", header(&console));
    }
}
