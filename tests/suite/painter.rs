//! The painter's output, read by an emulator: from any earlier screen, the result
//! equals a fresh paint.

use memory_shepherd::console::shell::terminal::{Painter, TerminalFeatures};
use memory_shepherd::console::theme::ColourDepth;
use proptest::prelude::*;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use unicode_width::UnicodeWidthStr;

use crate::terminal::{assert_same_cells, visible_cells};

/// A screen with all moving parts of the console: a header, a scrolling text with a
/// cursor, and a footer.
#[derive(Clone, Debug)]
struct TestPage {
    head: String,
    lines: Vec<(String, u8)>,
    top: usize,
    cursor: usize,
    background: Color,
    size: (u16, u16),
}

impl TestPage {
    fn draw(&self, buffer: &mut Buffer) {
        let (width, height) = self.size;
        let put = |buffer: &mut Buffer, y: u16, text: &str, style: Style| {
            if y < height {
                buffer.set_stringn(0, y, text, width.into(), style);
            }
        };
        buffer.set_style(buffer.area, Style::new().bg(self.background));
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

/// A change of the screen.
#[derive(Clone, Debug)]
enum PageChange {
    Scroll(i8),
    Cursor(usize),
    SetHead(String),
    Edit(usize, String, u8),
    Insert(usize, String),
    Remove(usize),
    Resize(u16, u16),
    SetBackground(bool),
    Forget,
}

fn page_text() -> impl Strategy<Value = String> {
    "([a-z ]{0,12}|日本|é|🙂| {6}|\u{2500}{3}){0,8}"
}

fn page_changes() -> impl Strategy<Value = PageChange> {
    prop_oneof![
        8 => (-9_i8..9).prop_map(PageChange::Scroll),
        3 => (0_usize..60).prop_map(PageChange::Cursor),
        1 => page_text().prop_map(PageChange::SetHead),
        2 => (0_usize..60, page_text(), any::<u8>()).prop_map(|(at, text, look)| PageChange::Edit(at, text, look)),
        2 => (0_usize..60, page_text()).prop_map(|(at, text)| PageChange::Insert(at, text)),
        1 => (0_usize..60).prop_map(PageChange::Remove),
        // The emulator itself fails with a single row.
        1 => (2_u16..70, 2_u16..24).prop_map(|(width, height)| PageChange::Resize(width, height)),
        1 => any::<bool>().prop_map(PageChange::SetBackground),
        1 => Just(PageChange::Forget),
    ]
}

fn features_with(scrolls: bool, erases: bool) -> TerminalFeatures {
    TerminalFeatures {
        can_scroll_region: scrolls,
        can_erase_to_background: erases,
        colour_depth: ColourDepth::TrueColour,
        is_ascii_only: false,
    }
}

fn paint_page(painter: &mut Painter<Vec<u8>>, page: &TestPage) -> Vec<u8> {
    let (width, height) = page.size;
    let area = Rect::new(0, 0, width, height);
    let count = painter
        .draw_frame(area, page.background, |buffer| page.draw(buffer))
        .unwrap();
    let bytes = std::mem::take(painter.out());
    assert_eq!(bytes.len(), count, "reported and written bytes differ");
    bytes
}

fn page_of(lines: Vec<(String, u8)>) -> TestPage {
    TestPage {
        head: "head".to_string(),
        lines,
        top: 0,
        cursor: 0,
        background: Color::Reset,
        size: (60, 20),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn repaint_of_any_screen_equals_fresh_paint(
        lines in prop::collection::vec((page_text(), any::<u8>()), 1..60),
        steps in prop::collection::vec(page_changes(), 1..24),
        scrolls in prop::bool::weighted(0.9),
        erases in prop::bool::weighted(0.8),
    ) {
        let mut page = page_of(lines);
        let mut painter = Painter::new(Vec::new(), features_with(scrolls, erases));
        let mut emulator = vt100::Parser::new(page.size.1, page.size.0, 0);
        emulator.process(&paint_page(&mut painter, &page));
        let plain = |page: &TestPage| {
            let mut fresh = vt100::Parser::new(page.size.1, page.size.0, 0);
            fresh.process(&paint_page(&mut Painter::new(Vec::new(), features_with(false, false)), page));
            fresh
        };
        for step in steps {
            let what = format!("{step:?}");
            let last = page.lines.len() - 1;
            match step {
                PageChange::Scroll(by) => {
                    page.top = page.top.saturating_add_signed(by.into()).min(last);
                }
                PageChange::Cursor(at) => page.cursor = at.min(last),
                PageChange::SetHead(text) => page.head = text,
                PageChange::Edit(at, text, look) => page.lines[at.min(last)] = (text, look),
                PageChange::Insert(at, text) => page.lines.insert(at.min(last), (text, 0)),
                PageChange::Remove(at) if last > 0 => drop(page.lines.remove(at.min(last))),
                PageChange::Remove(_) => {}
                PageChange::Resize(width, height) => {
                    page.size = (width, height);
                    emulator.screen_mut().set_size(height, width);
                }
                PageChange::SetBackground(own) => {
                    page.background = if own { Color::Rgb(20, 23, 28) } else { Color::Reset };
                    painter.invalidate();
                }
                PageChange::Forget => {
                    emulator.process(b"\x1b[7m\x1b[H\x1b[2Jnoise\x1b[5;9Hnoise\x1b[2;3r");
                    painter.invalidate();
                }
            }
            page.top = page.top.min(page.lines.len() - 1);
            let bytes = paint_page(&mut painter, &page);
            emulator.process(&bytes);
            assert_same_cells(&visible_cells(emulator.screen()), &visible_cells(plain(&page).screen()), &what);
            prop_assert!(scrolls || !sets_margins(&bytes));
        }
        // No margins remain: a line feed on a shorter screen would move all rows below
        // it.
        let mut fresh = plain(&page);
        for emulator in [&mut emulator, &mut fresh] {
            emulator.process(b"\x1b[1H\x1b[M");
        }
        assert_same_cells(&visible_cells(emulator.screen()), &visible_cells(fresh.screen()), "margins");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn ascii_painter_writes_only_ascii(
        lines in prop::collection::vec((text_with_signs(), any::<u8>()), 1..20),
        edits in prop::collection::vec((0_usize..20, text_with_signs(), any::<u8>()), 0..8),
        scrolls in any::<bool>(),
    ) {
        let mut page = page_of(lines);
        let ascii = TerminalFeatures { is_ascii_only: true, ..features_with(scrolls, true) };
        let mut painter = Painter::new(Vec::new(), ascii);
        let mut emulator = vt100::Parser::new(page.size.1, page.size.0, 0);
        for (at, text, look) in std::iter::once((usize::MAX, String::new(), 0)).chain(edits) {
            if let Some(line) = page.lines.get_mut(at) {
                *line = (text, look);
            }
            page.top = at % page.lines.len();
            let bytes = paint_page(&mut painter, &page);
            prop_assert!(bytes.is_ascii(), "{}", String::from_utf8_lossy(&bytes));
            emulator.process(&bytes);
        }
        // Each sign keeps its number of cells, and ASCII stays as it was.
        let mut meant = Buffer::empty(Rect::new(0, 0, page.size.0, page.size.1));
        page.draw(&mut meant);
        for (y, row) in visible_cells(emulator.screen()).iter().enumerate() {
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

/// Text with the console's own signs, and with the signs of others.
fn text_with_signs() -> impl Strategy<Value = String> {
    "([a-z ]{0,9}|日本|e\u{301}|🙂|👩\u{200D}🚀|ж|[─│═▲✓·…⋯→‹›◌░▁▂▃▄▅▆▇█␛␊]|\\PC){0,12}"
}

#[test]
fn ascii_fallback_resembles_the_signs() {
    let spelt = |text: &str| {
        let ascii = TerminalFeatures {
            is_ascii_only: true,
            ..features_with(false, true)
        };
        let mut painter = Painter::new(Vec::new(), ascii);
        let lines = vec![(text.to_string(), 0)];
        let page = TestPage {
            cursor: 9,
            ..page_of(lines)
        };
        let mut emulator = vt100::Parser::new(page.size.1, page.size.0, 0);
        emulator.process(&paint_page(&mut painter, &page));
        let row = emulator.screen().rows(0, page.size.0).nth(2).unwrap();
        row.trim_start_matches("   0 ").to_string()
    };
    assert_eq!(spelt("─│═ ▲✓ · … → ‹U+202E›"), "-|= ^+ . ~ > <U+202E>");
    assert_eq!(spelt("␛[31m ▁▂▃▄▅▆▇█░"), "^[31m .:-=+*#@.");
    assert_eq!(spelt("日本 é ж!"), "???? ? ?!");
}

/// Returns whether margins were set, not only reset.
fn sets_margins(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut codes = text.split("\x1b[").skip(1);
    codes.any(|code| {
        let rest = code.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';');
        rest.starts_with('r') && rest.len() < code.len()
    })
}

/// Returns the lines of text that differ.
fn prose_lines() -> Vec<(String, u8)> {
    let line = |number: usize| {
        let words = ["rules", "notes", "memory", "baseline", "agents", "of", "to"];
        let word = |at: usize| words[(number * 5 + at * 3 + number / 7) % words.len()];
        ((0..7).map(word).collect::<Vec<_>>().join(" "), 0)
    };
    (0..60).map(line).collect()
}

#[test]
fn moved_rows_are_scrolled_by_terminal() {
    let mut page = page_of(prose_lines());
    page.cursor = 59;
    let mut painter = Painter::new(Vec::new(), features_with(true, true));
    let mut plain = Painter::new(Vec::new(), features_with(false, true));
    paint_page(&mut painter, &page);
    paint_page(&mut plain, &page);
    for (top, most) in [(1, 110), (2, 110), (1, 110), (0, 110), (8, 480), (0, 480)] {
        page.top = top;
        let (moved, repainted) = (
            paint_page(&mut painter, &page),
            paint_page(&mut plain, &page),
        );
        assert!(sets_margins(&moved), "to {top}");
        assert!(!sets_margins(&repainted), "to {top}");
        assert!(moved.len() <= most, "to {top}: {} B", moved.len());
        assert!(repainted.len() > 500, "to {top}: {} B", repainted.len());
    }
}

#[test]
fn terminal_without_color_erase_gets_colored_blanks() {
    let mut page = page_of(vec![("text".to_string(), 0)]);
    page.background = Color::Blue;
    let first = |erases| {
        let mut painter = Painter::new(Vec::new(), features_with(true, erases));
        String::from_utf8(paint_page(&mut painter, &page)).unwrap()
    };
    let (with, without) = (first(true), first(false));
    assert!(with.contains("\x1b[2J") && with.len() < 400, "{with:?}");
    assert!(!without.contains("\x1b[2J") && !without.contains("\x1b[K"));
    assert!(without.len() > 1_000, "{without:?}");
}
