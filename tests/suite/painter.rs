//! What the painter writes, read by an emulator: whatever was on the screen
//! before, in the end it shows what a fresh paint shows.

use memory_shepherd::console::term::{Painter, TerminalFeatures};
use memory_shepherd::console::theme::ColourDepth;
use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr;

use crate::terminal::{assert_same_grid, grid};

/// A screen with all that moves on ours: a head, a text that scrolls with a
/// cursor in it, and a foot.
#[derive(Clone, Debug)]
struct Page {
    head: String,
    lines: Vec<(String, u8)>,
    top: usize,
    cursor: usize,
    ground: Color,
    size: (u16, u16),
}

impl Page {
    fn draw(&self, buffer: &mut Buffer) {
        let (width, height) = self.size;
        let put = |buffer: &mut Buffer, y: u16, text: &str, style: Style| {
            if y < height {
                buffer.set_stringn(0, y, text, width.into(), style);
            }
        };
        buffer.set_style(buffer.area, Style::new().bg(self.ground));
        put(buffer, 0, &self.head, Style::new().bold());
        put(buffer, 1, &"─".repeat(width.into()), Style::new().dim());
        let room = usize::from(height.saturating_sub(4));
        let shown = self.lines.iter().enumerate().skip(self.top).take(room);
        for (row, (number, (text, look))) in shown.enumerate() {
            let look = match look % 5 {
                0 => Style::new(),
                1 => Style::new().fg(Color::Green),
                2 => Style::new().fg(Color::Rgb(9, 99, 199)).bold(),
                3 => Style::new().underlined(),
                _ => Style::new().bg(Color::Indexed(52)),
            };
            let y = row as u16 + 2;
            put(buffer, y, &format!("{number:>4} {text}"), look);
            if number == self.cursor {
                let area = Rect::new(0, y, width, 1);
                buffer.set_style(area, Style::new().add_modifier(Modifier::REVERSED));
            }
        }
        let foot = height.saturating_sub(1);
        put(buffer, foot, &format!("{} of it", self.top), Style::new());
    }
}

/// What happens to it.
#[derive(Clone, Debug)]
enum Step {
    Scroll(i8),
    Cursor(usize),
    Head(String),
    Edit(usize, String, u8),
    Insert(usize, String),
    Remove(usize),
    Resize(u16, u16),
    Ground(bool),
    Forget,
}

fn text() -> impl Strategy<Value = String> {
    "([a-z ]{0,12}|日本|é|🙂| {6}|\u{2500}{3}){0,8}"
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (-9_i8..9).prop_map(Step::Scroll),
        3 => (0_usize..60).prop_map(Step::Cursor),
        1 => text().prop_map(Step::Head),
        2 => (0_usize..60, text(), any::<u8>()).prop_map(|(at, text, look)| Step::Edit(at, text, look)),
        2 => (0_usize..60, text()).prop_map(|(at, text)| Step::Insert(at, text)),
        1 => (0_usize..60).prop_map(Step::Remove),
        // In one row the emulator itself fails.
        1 => (2_u16..70, 2_u16..24).prop_map(|(width, height)| Step::Resize(width, height)),
        1 => any::<bool>().prop_map(Step::Ground),
        1 => Just(Step::Forget),
    ]
}

fn able(scrolls: bool, erases: bool) -> TerminalFeatures {
    TerminalFeatures {
        can_scroll_region: scrolls,
        can_erase_to_background: erases,
        colour_depth: ColourDepth::TrueColour,
        is_ascii_only: false,
    }
}

fn paint(painter: &mut Painter<Vec<u8>>, page: &Page) -> Vec<u8> {
    let (width, height) = page.size;
    let area = Rect::new(0, 0, width, height);
    let count = painter
        .draw_frame(area, page.ground, |buffer| page.draw(buffer))
        .unwrap();
    let bytes = std::mem::take(painter.out());
    assert_eq!(bytes.len(), count, "what it says it wrote");
    bytes
}

fn page(lines: Vec<(String, u8)>) -> Page {
    Page {
        head: "head".to_string(),
        lines,
        top: 0,
        cursor: 0,
        ground: Color::Reset,
        size: (60, 20),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whatever_was_shown_before_a_frame_ends_as_a_fresh_paint(
        lines in prop::collection::vec((text(), any::<u8>()), 1..60),
        steps in prop::collection::vec(step(), 1..24),
        scrolls in prop::bool::weighted(0.9),
        erases in prop::bool::weighted(0.8),
    ) {
        let mut page = page(lines);
        let mut painter = Painter::new(Vec::new(), able(scrolls, erases));
        let mut emulator = vt100::Parser::new(page.size.1, page.size.0, 0);
        emulator.process(&paint(&mut painter, &page));
        let plain = |page: &Page| {
            let mut fresh = vt100::Parser::new(page.size.1, page.size.0, 0);
            fresh.process(&paint(&mut Painter::new(Vec::new(), able(false, false)), page));
            fresh
        };
        for step in steps {
            let what = format!("{step:?}");
            let last = page.lines.len() - 1;
            match step {
                Step::Scroll(by) => {
                    page.top = page.top.saturating_add_signed(by.into()).min(last);
                }
                Step::Cursor(at) => page.cursor = at.min(last),
                Step::Head(text) => page.head = text,
                Step::Edit(at, text, look) => page.lines[at.min(last)] = (text, look),
                Step::Insert(at, text) => page.lines.insert(at.min(last), (text, 0)),
                Step::Remove(at) if last > 0 => drop(page.lines.remove(at.min(last))),
                Step::Remove(_) => {}
                Step::Resize(width, height) => {
                    page.size = (width, height);
                    emulator.screen_mut().set_size(height, width);
                }
                Step::Ground(own) => {
                    page.ground = if own { Color::Rgb(20, 23, 28) } else { Color::Reset };
                    painter.invalidate();
                }
                Step::Forget => {
                    emulator.process(b"\x1b[7m\x1b[H\x1b[2Jnoise\x1b[5;9Hnoise\x1b[2;3r");
                    painter.invalidate();
                }
            }
            page.top = page.top.min(page.lines.len() - 1);
            let bytes = paint(&mut painter, &page);
            emulator.process(&bytes);
            assert_same_grid(&grid(emulator.screen()), &grid(plain(&page).screen()), &what);
            prop_assert!(scrolls || !moves(&bytes));
        }
        // No margins are left behind: a line less moves all that are below it.
        let mut fresh = plain(&page);
        for emulator in [&mut emulator, &mut fresh] {
            emulator.process(b"\x1b[1H\x1b[M");
        }
        assert_same_grid(&grid(emulator.screen()), &grid(fresh.screen()), "margins");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn nothing_but_ascii_leaves_for_a_locale_without_utf_8(
        lines in prop::collection::vec((foreign(), any::<u8>()), 1..20),
        edits in prop::collection::vec((0_usize..20, foreign(), any::<u8>()), 0..8),
        scrolls in any::<bool>(),
    ) {
        let mut page = page(lines);
        let ascii = TerminalFeatures { is_ascii_only: true, ..able(scrolls, true) };
        let mut painter = Painter::new(Vec::new(), ascii);
        let mut emulator = vt100::Parser::new(page.size.1, page.size.0, 0);
        for (at, text, look) in std::iter::once((usize::MAX, String::new(), 0)).chain(edits) {
            if let Some(line) = page.lines.get_mut(at) {
                *line = (text, look);
            }
            page.top = at % page.lines.len();
            let bytes = paint(&mut painter, &page);
            prop_assert!(bytes.is_ascii(), "{}", String::from_utf8_lossy(&bytes));
            emulator.process(&bytes);
        }
        // Each sign takes the cells that it took, and what is ASCII is what it was.
        let mut meant = Buffer::empty(Rect::new(0, 0, page.size.0, page.size.1));
        page.draw(&mut meant);
        for (y, row) in grid(emulator.screen()).iter().enumerate() {
            let mut left = 0;
            for (x, spelt) in row.iter().enumerate() {
                let symbol = meant[(x as u16, y as u16)].symbol();
                if left == 0 && !symbol.is_ascii() {
                    left = symbol.width().max(1);
                }
                match left {
                    0 => prop_assert_eq!(&spelt.text, symbol),
                    _ => prop_assert!(spelt.text != " ", "{symbol:?} in {row:?}"),
                }
                left = left.saturating_sub(1);
            }
        }
    }
}

/// Text with our own signs, and with all that others write.
fn foreign() -> impl Strategy<Value = String> {
    "([a-z ]{0,9}|日本|e\u{301}|🙂|👩\u{200D}🚀|ж|[─│═▲✓·…⋯→‹›◌░▁▂▃▄▅▆▇█␛␊]|\\PC){0,12}"
}

#[test]
fn our_signs_are_spelt_with_what_looks_like_them() {
    let spelt = |text: &str| {
        let ascii = TerminalFeatures {
            is_ascii_only: true,
            ..able(false, true)
        };
        let mut painter = Painter::new(Vec::new(), ascii);
        let lines = vec![(text.to_string(), 0)];
        let page = Page {
            cursor: 9,
            ..page(lines)
        };
        let mut emulator = vt100::Parser::new(page.size.1, page.size.0, 0);
        emulator.process(&paint(&mut painter, &page));
        let row = emulator.screen().rows(0, page.size.0).nth(2).unwrap();
        row.trim_start_matches("   0 ").to_string()
    };
    assert_eq!(spelt("─│═ ▲✓ · … → ‹U+202E›"), "-|= ^+ . ~ > <U+202E>");
    assert_eq!(spelt("␛[31m ▁▂▃▄▅▆▇█░"), "^[31m .:-=+*#@.");
    assert_eq!(spelt("日本 é ж!"), "???? ? ?!");
}

/// Whether margins were set, not only taken away.
fn moves(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut codes = text.split("\x1b[").skip(1);
    codes.any(|code| {
        let rest = code.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        rest.starts_with('r') && rest.len() < code.len()
    })
}

/// Lines of text that differ.
fn prose() -> Vec<(String, u8)> {
    let line = |number: usize| {
        let words = ["rules", "notes", "memory", "baseline", "agents", "of", "to"];
        let word = |at: usize| words[(number * 5 + at * 3 + number / 7) % words.len()];
        ((0..7).map(word).collect::<Vec<_>>().join(" "), 0)
    };
    (0..60).map(line).collect()
}

#[test]
fn rows_that_moved_are_moved_by_the_terminal() {
    let mut page = page(prose());
    page.cursor = 59;
    let mut painter = Painter::new(Vec::new(), able(true, true));
    let mut plain = Painter::new(Vec::new(), able(false, true));
    paint(&mut painter, &page);
    paint(&mut plain, &page);
    for (top, most) in [(1, 110), (2, 110), (1, 110), (0, 110), (8, 480), (0, 480)] {
        page.top = top;
        let (moved, repainted) = (paint(&mut painter, &page), paint(&mut plain, &page));
        assert!(moves(&moved), "to {top}");
        assert!(!moves(&repainted), "to {top}");
        assert!(moved.len() <= most, "to {top}: {} B", moved.len());
        assert!(repainted.len() > 500, "to {top}: {} B", repainted.len());
    }
}

#[test]
fn a_terminal_that_erases_in_no_colour_is_given_blanks_in_colour() {
    let mut page = page(vec![("text".to_string(), 0)]);
    page.ground = Color::Blue;
    let first = |erases| {
        let mut painter = Painter::new(Vec::new(), able(true, erases));
        String::from_utf8(paint(&mut painter, &page)).unwrap()
    };
    let (with, without) = (first(true), first(false));
    assert!(with.contains("\x1b[2J") && with.len() < 400, "{with:?}");
    assert!(!without.contains("\x1b[2J") && !without.contains("\x1b[K"));
    assert!(without.len() > 1_000, "{without:?}");
}
