//! What does each key do?
//!
//! State and rules, without a terminal: keys and looks go in, what is to be done comes out.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::look::{Look, Row};

/// What is shown, and what has been typed.
#[derive(Debug, Default)]
pub(super) struct App {
    /// Where it is asked.
    pub(super) url: String,
    pub(super) now: Option<Look>,
    pub(super) before: Option<Look>,
    /// Why there is nothing newer.
    pub(super) fault: Option<String>,
    /// What became of what was done last.
    pub(super) message: Option<String>,
    pub(super) filter: String,
    pub(super) mode: Mode,
    /// The id of the row that is chosen: rows come and go.
    pub(super) chosen: Option<String>,
    /// The first row that is shown.
    pub(super) top: usize,
    /// How many rows are shown.
    pub(super) height: usize,
}

/// What keys are for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum Mode {
    #[default]
    Browse,
    /// They are the filter.
    Filter,
    /// They say yes or no.
    Confirm { id: String, draining: bool },
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Act {
    Nothing,
    Leave,
    Drain { id: String, draining: bool },
}

impl App {
    pub(super) fn new(url: String, filter: String) -> Self {
        Self {
            url,
            filter,
            height: 1,
            ..Self::default()
        }
    }

    /// The rows that the filter finds.
    pub(super) fn rows(&self) -> Vec<&Row> {
        self.now
            .as_ref()
            .map(|look| look.found(&self.filter))
            .unwrap_or_default()
    }

    /// Where the chosen row is among them; the first, if it is not there.
    pub(super) fn position(&self, rows: &[&Row]) -> usize {
        let is_chosen = |row: &&Row| Some(&row.id) == self.chosen.as_ref();
        rows.iter().position(is_chosen).unwrap_or_default()
    }

    /// Takes what was told, or why nothing was.
    pub(super) fn looked(&mut self, look: Result<Look, String>) {
        match look {
            Ok(look) => {
                self.before = self.now.replace(look);
                self.fault = None;
            }
            Err(why) => self.fault = Some(why),
        }
    }

    /// Takes a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Act {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Act::Leave;
        }
        match std::mem::take(&mut self.mode) {
            Mode::Browse => self.browse(key.code),
            Mode::Filter => {
                self.type_filter(key.code);
                Act::Nothing
            }
            Mode::Confirm { id, draining } => match key.code {
                KeyCode::Char('y' | 'Y') => Act::Drain { id, draining },
                _ => {
                    self.message = Some(format!("{id} is left as it is"));
                    Act::Nothing
                }
            },
        }
    }

    fn browse(&mut self, code: KeyCode) -> Act {
        let page = self.height.max(1).cast_signed();
        match code {
            KeyCode::Char('q') => return Act::Leave,
            KeyCode::Char('j') | KeyCode::Down => self.step(1),
            KeyCode::Char('k') | KeyCode::Up => self.step(-1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.step(page),
            KeyCode::PageUp => self.step(-page),
            KeyCode::Char('g') | KeyCode::Home => self.step(isize::MIN),
            KeyCode::Char('G') | KeyCode::End => self.step(isize::MAX),
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('d') => {
                let rows = self.rows();
                if let Some(row) = rows.get(self.position(&rows)) {
                    let (id, draining) = (row.id.clone(), !row.draining);
                    self.chosen = Some(id.clone());
                    self.mode = Mode::Confirm { id, draining };
                }
            }
            _ => {}
        }
        Act::Nothing
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => return,
            KeyCode::Esc => {
                self.filter.clear();
                return;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
        self.mode = Mode::Filter;
    }

    /// Chooses the row so many further on.
    fn step(&mut self, by: isize) {
        let rows = self.rows();
        let last = rows.len().saturating_sub(1);
        let to = self.position(&rows).saturating_add_signed(by).min(last);
        self.chosen = rows.get(to).map(|row| row.id.clone());
    }

    /// Puts the chosen row among those that are shown.
    pub(super) fn scroll(&mut self, height: usize) {
        self.height = height.max(1);
        let rows = self.rows();
        let (at, many) = (self.position(&rows), rows.len());
        let lowest = at.saturating_sub(self.height - 1);
        self.top = self
            .top
            .clamp(lowest, at)
            .min(many.saturating_sub(self.height).max(lowest));
    }
}

#[cfg(test)]
mod tests {
    use super::super::look::tests::look;
    use super::*;

    fn press(app: &mut App, keys: &str) -> Act {
        let mut act = Act::Nothing;
        for letter in keys.chars() {
            let code = match letter {
                '\n' => KeyCode::Enter,
                '\u{1b}' => KeyCode::Esc,
                '\u{8}' => KeyCode::Backspace,
                letter => KeyCode::Char(letter),
            };
            act = app.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
        act
    }

    fn shown() -> App {
        let mut app = App::new("http://a".to_owned(), String::new());
        app.looked(Ok(look(0, 1)));
        app
    }

    #[test]
    fn rows_are_walked_and_the_ends_hold() {
        let mut app = shown();
        for (keys, at) in [
            ("j", "gpu-2"),
            ("j", "gpu-2"),
            ("k", "gpu-1"),
            ("kk", "gpu-1"),
            ("G", "gpu-2"),
            ("g", "gpu-1"),
        ] {
            press(&mut app, keys);
            assert_eq!(app.chosen.as_deref(), Some(at), "{keys}");
        }
        app.chosen = Some("gone".to_owned());
        press(&mut app, "j");
        assert_eq!(app.chosen.as_deref(), Some("gpu-2"), "from the first on");
        let mut empty = App::new(String::new(), String::new());
        assert_eq!(press(&mut empty, "jkGgd/x\n\u{1b}"), Act::Nothing);
        assert_eq!(empty.mode, Mode::Browse);
    }

    #[test]
    fn nothing_is_drained_without_a_yes() {
        let mut app = shown();
        let drain = |id: &str, draining| Act::Drain {
            id: id.to_owned(),
            draining,
        };
        assert_eq!(press(&mut app, "jd"), Act::Nothing);
        assert!(matches!(&app.mode, Mode::Confirm { id, draining: true } if id == "gpu-2"));
        assert_eq!(press(&mut app, "n"), Act::Nothing);
        assert_eq!(press(&mut app, "d\u{1b}"), Act::Nothing);
        assert_eq!(press(&mut app, "dq"), Act::Nothing, "this q is a no");
        assert_eq!(press(&mut app, "dy"), drain("gpu-2", true));
        let mut drained = look(2, 1);
        drained.upstreams[1].draining = true;
        app.looked(Ok(drained));
        assert_eq!(press(&mut app, "dy"), drain("gpu-2", false));
    }

    #[test]
    fn a_filter_is_typed_kept_and_left() {
        let mut app = shown();
        press(&mut app, "/zone=aq\u{8}");
        assert_eq!((app.filter.as_str(), app.rows().len()), ("zone=a", 1));
        press(&mut app, "\n");
        assert_eq!((app.mode.clone(), app.rows().len()), (Mode::Browse, 1));
        press(&mut app, "\u{1b}");
        assert_eq!(app.rows().len(), 2);
        press(&mut app, "/q");
        assert_eq!(app.rows().len(), 0, "letters are letters there");
        assert_eq!(
            app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)),
            Act::Leave
        );
        press(&mut app, "\u{1b}");
        assert_eq!(press(&mut app, "q"), Act::Leave);
    }

    #[test]
    fn what_was_known_stays_while_nobody_answers() {
        let mut app = shown();
        app.looked(Err("nobody answers".to_owned()));
        assert_eq!(
            (app.rows().len(), app.fault.as_deref()),
            (2, Some("nobody answers"))
        );
        app.looked(Ok(look(2, 5)));
        assert!(app.fault.is_none() && app.before.is_some());
    }
}
