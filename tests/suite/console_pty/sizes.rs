//! Changes of the size of the terminal.

use super::*;

#[test]
fn resize_storm_ends_with_exact_screen() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    let mut random = 7_u32;
    let mut next = |most: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((random >> 8) % most + 1) as u16
    };
    for number in 0..40 {
        let (columns, rows) = match number {
            0 => (1, 1),
            1 => (300, 100),
            _ => (next(300), next(100)),
        };
        terminal.resize(columns, rows);
        if number % 3 == 0 {
            terminal.send("jk");
        }
    }
    terminal.resize(97, 31);
    // Neither an earlier size nor the delayed details of the cursor's row may remain:
    // the final screen equals that of a console started with this size.
    let mut other = start_fleet_at(&site, (97, 31));
    other.wait("the cursor's agent", |other| {
        other.row(27).starts_with(" code-reviewer: ")
    });
    let expected = visible_cells(other.screen());
    quit_console(other);
    terminal.wait_for_cells("after the storm", &expected);
    let before = terminal.bytes.len();
    terminal.send("\x0c");
    terminal.wait("everything to be drawn again", |terminal| {
        terminal.bytes.len() > before + 500
    });
    terminal.wait_for_cells("a fresh paint", &expected);
    quit_console(terminal);
}

#[test]
fn restored_size_is_redrawn() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    terminal.wait_for_quiet();
    let expected = visible_cells(terminal.screen());
    // The kernel may merge two changes into one signal: the size is the old one, and
    // the terminal has cut its content.
    terminal.resize_unseen(20, 5);
    terminal.signal(Signal::WINCH);
    terminal.wait_for_cells("the size that came back", &expected);
    quit_console(terminal);
}

#[test]
fn huge_terminal_is_used_in_part() {
    let site = two_agent_site();
    let mut terminal = start_fleet(&site);
    terminal.resize(1100, 520);
    terminal.wait("the footer in the last row that is used", |terminal| {
        terminal.row(511).contains("? help")
    });
    assert_eq!(terminal.row(519), "");
    quit_console(terminal);
}
