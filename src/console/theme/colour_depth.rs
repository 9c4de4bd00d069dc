//! Reduces a theme's colours to the nearest ones that the terminal has.

use ratatui::style::{Color, Modifier, Style};

/// Number of colours that a terminal shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColourDepth {
    /// Its own 16.
    Ansi16,
    /// 256, by number.
    Indexed256,
    /// All 24-bit colours.
    #[default]
    TrueColour,
}

/// The 16 colours in the order of their numbers, as terminals show them by default.
pub const ANSI_COLOURS: [(Color, [u8; 3]); 16] = [
    (Color::Black, [0, 0, 0]),
    (Color::Red, [205, 0, 0]),
    (Color::Green, [0, 205, 0]),
    (Color::Yellow, [205, 205, 0]),
    (Color::Blue, [0, 0, 238]),
    (Color::Magenta, [205, 0, 205]),
    (Color::Cyan, [0, 205, 205]),
    (Color::Gray, [229, 229, 229]),
    (Color::DarkGray, [127, 127, 127]),
    (Color::LightRed, [255, 0, 0]),
    (Color::LightGreen, [0, 255, 0]),
    (Color::LightYellow, [255, 255, 0]),
    (Color::LightBlue, [92, 92, 255]),
    (Color::LightMagenta, [255, 0, 255]),
    (Color::LightCyan, [0, 255, 255]),
    (Color::White, [255, 255, 255]),
];

impl ColourDepth {
    /// Returns a style in the terminal's colours, to be drawn over that of ordinary text. Where two
    /// colours became one and something would be invisible, the style is reversed instead.
    pub(super) fn reduce_style(self, style: Style, background: Style) -> Style {
        let (reduced, plain) = (self.reduce_colours(style), self.reduce_colours(background));
        let (fg, bg) = (reduced.fg.or(plain.fg), reduced.bg.or(plain.bg));
        let is_invisible = fg == bg && fg.is_some();
        let has_own_background = style.bg.is_some() && style.bg != background.bg;
        let is_like_plain =
            (fg, bg) == (plain.fg, plain.bg) && reduced.add_modifier == plain.add_modifier;
        if is_invisible || (has_own_background && is_like_plain) {
            Style::new().add_modifier(reduced.add_modifier | Modifier::REVERSED)
        } else {
            reduced
        }
    }

    fn reduce_colours(self, mut style: Style) -> Style {
        style.fg = style.fg.map(|colour| match self {
            ColourDepth::Ansi16 => {
                ansi_colour_by_hue(colour).unwrap_or(self.nearest_colour(colour))
            }
            _ => self.nearest_colour(colour),
        });
        style.bg = style.bg.map(|colour| self.nearest_colour(colour));
        style
    }

    fn nearest_colour(self, colour: Color) -> Color {
        let Some(exact) = exact_rgb(colour) else {
            return colour;
        };
        match (self, colour) {
            (ColourDepth::TrueColour, _) | (ColourDepth::Indexed256, Color::Indexed(_)) => colour,
            // The first 16 differ between terminals.
            (ColourDepth::Indexed256, _) => {
                let all = (16..=255).map(|number| (Color::Indexed(number), indexed_rgb(number)));
                closest_colour(exact, all).unwrap_or(colour)
            }
            (ColourDepth::Ansi16, _) => {
                closest_colour(exact, ANSI_COLOURS.into_iter()).unwrap_or(colour)
            }
        }
    }
}

/// Returns the RGB parts of a colour; `None` for the terminal's own colours.
pub(super) fn exact_rgb(colour: Color) -> Option<[u8; 3]> {
    match colour {
        Color::Rgb(red, green, blue) => Some([red, green, blue]),
        Color::Indexed(number) => Some(indexed_rgb(number)),
        _ => None,
    }
}

/// Returns the one of the 16 colours that has the same hue, for text, even if a grey is nearer.
/// `None` for greys.
fn ansi_colour_by_hue(colour: Color) -> Option<Color> {
    let parts = exact_rgb(colour)?;
    let (least, most) = (parts.iter().min()?, parts.iter().max()?);
    if most - least < 48 {
        return None;
    }
    let middle = least + (most - least) / 2;
    // Red, green and blue are the bits of the colour's number.
    let bits = (0..3).filter(|part| parts[*part] > middle);
    let number = bits.map(|part| 1 << part).sum::<usize>();
    let bright = if *most >= 200 { 8 } else { 0 };
    ANSI_COLOURS.get(number + bright).map(|(colour, _)| *colour)
}

fn closest_colour(exact: [u8; 3], all: impl Iterator<Item = (Color, [u8; 3])>) -> Option<Color> {
    all.min_by_key(|(_, other)| colour_distance(exact, *other))
        .map(|(colour, _)| colour)
}

/// Returns roughly how different two colours look: the eye is most sensitive to green.
fn colour_distance(one: [u8; 3], other: [u8; 3]) -> u32 {
    let part = |at: usize| u32::from(one[at].abs_diff(other[at])).pow(2);
    2 * part(0) + 4 * part(1) + 3 * part(2)
}

/// Returns the RGB parts of one of the 256 colours.
fn indexed_rgb(number: u8) -> [u8; 3] {
    let step = |part: u8| if part == 0 { 0 } else { 55 + 40 * part };
    match number {
        0..16 => ANSI_COLOURS[usize::from(number)].1,
        16..232 => {
            let cube = number - 16;
            [step(cube / 36), step(cube / 6 % 6), step(cube % 6)]
        }
        232.. => [8 + 10 * (number - 232); 3],
    }
}
