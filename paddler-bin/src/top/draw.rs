//! How is it drawn on a terminal?

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row as Drawn, Table};

use super::app::{App, Mode};
use super::look::{HEADS, Look, NUMBERS, Row, clean};

/// How wide each column is, but for the first and the last, which share what is left.
const WIDTHS: [u16; 6] = [9, 11, 8, 8, 5, 8];

const QUIET: Style = Style::new().add_modifier(Modifier::DIM);

/// Draws everything. Only the rows that are shown are made.
pub(super) fn draw(frame: &mut Frame<'_>, app: &mut App) {
    let rows = Constraint::Min(3);
    let [head, table, why, foot] = Layout::vertical([
        Constraint::Length(3),
        rows,
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    app.scroll(usize::from(table.height.saturating_sub(1)));
    frame.render_widget(ratatui::text::Text::from(sums(app)), head);
    upstreams(frame, app, table);
    let rows = app.rows();
    if let Some(row) = rows.get(app.position(&rows)) {
        let said = format!("{} {}  {}", row.id, row.url, row.why);
        frame.render_widget(Line::styled(said, QUIET), why);
    }
    frame.render_widget(footer(app), foot);
}

fn sums(app: &App) -> Vec<Line<'static>> {
    let link = match &app.fault {
        Some(why) => Span::styled(clean(why), Style::new().fg(Color::Red)),
        None if app.now.is_none() => Span::styled("asking ...", QUIET),
        None => Span::styled("live", Style::new().fg(Color::Green)),
    };
    let title = Span::styled("paddler ", Style::new().add_modifier(Modifier::BOLD));
    let first = Line::from(vec![title, Span::raw(format!("{}  ", app.url)), link]);
    let Some(look) = &app.now else {
        return vec![first];
    };
    let rate = |count: &dyn Fn(&Look) -> f64| match look.rate(app.before.as_ref(), count) {
        Some(rate) => format!("{rate:.1}/s"),
        None => "-".to_owned(),
    };
    let second = format!(
        "serving {}/{}   here {}   waiting {}/{}   answered {}   refused {}",
        look.serving(),
        look.upstreams.len(),
        look.here,
        look.queue.waiting,
        look.queue.max_requests,
        rate(&|look| look.answered),
        rate(&Look::refusals),
    );
    let mut reasons: Vec<_> = look.refused.iter().collect();
    reasons.sort_by(|one, other| other.1.total_cmp(one.1));
    let said: Vec<_> = reasons
        .iter()
        .map(|(reason, many)| format!("{reason} {many}"))
        .collect();
    let refused = if said.is_empty() {
        "none".to_owned()
    } else {
        said.join("  ")
    };
    vec![
        first,
        Line::raw(second),
        Line::styled(format!("refused so far: {refused}"), QUIET),
    ]
}

fn upstreams(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let rows = app.rows();
    let at = app.position(&rows);
    let shown = rows.iter().enumerate().skip(app.top).take(app.height);
    let drawn = shown.map(|(index, row)| one(row, index == at));
    let heads = HEADS
        .iter()
        .enumerate()
        .map(|(column, head)| aligned(column, (*head).to_owned()));
    let mut widths = vec![Constraint::Fill(2)];
    widths.extend(WIDTHS.map(Constraint::Length));
    widths.push(Constraint::Fill(3));
    let head = Drawn::new(heads).style(Style::new().add_modifier(Modifier::BOLD));
    frame.render_widget(Table::new(drawn, widths).header(head).column_spacing(1), area);
}

fn one(row: &Row, is_chosen: bool) -> Drawn<'static> {
    let style = if is_chosen {
        Style::new().add_modifier(Modifier::REVERSED)
    } else {
        Style::new()
    };
    let cells = row.cells().into_iter().enumerate().map(|(column, text)| {
        let cell = aligned(column, text);
        if column == 1 {
            cell.style(Style::new().fg(colour(&row.state)))
        } else {
            cell
        }
    });
    Drawn::new(cells).style(style)
}

fn aligned(column: usize, text: String) -> Cell<'static> {
    let line = Line::raw(text);
    Cell::from(if NUMBERS.contains(&column) {
        line.right_aligned()
    } else {
        line
    })
}

fn colour(state: &str) -> Color {
    match state {
        "healthy" => Color::Green,
        "ejected" | "unable" => Color::Red,
        "draining" => Color::Blue,
        _ => Color::Yellow,
    }
}

fn footer(app: &App) -> Line<'static> {
    match &app.mode {
        Mode::Filter => Line::raw(format!(
            "/{}_   Enter keeps it, Esc leaves it",
            clean(&app.filter)
        )),
        Mode::Confirm { id, draining } => {
            let what = if *draining {
                format!("Drain {id}? It gets nothing new; what it has comes to its end.")
            } else {
                format!("Let {id} back in?")
            };
            Line::styled(
                format!("{what}  y: yes, any other key: no"),
                Style::new().fg(Color::Yellow),
            )
        }
        Mode::Browse => {
            let filter = if app.filter.is_empty() {
                String::new()
            } else {
                format!("   filter: {} (Esc)", clean(&app.filter))
            };
            let message = app
                .message
                .as_ref()
                .map(|said| format!("{}   ", clean(said)))
                .unwrap_or_default();
            Line::raw(format!(
                "{message}j/k move   d drain or undrain   / filter   q quit{filter}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

    use super::super::look::tests::look;
    use super::*;

    /// What a terminal of this size shows, a line each.
    fn shown(app: &mut App, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, app)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    fn press(app: &mut App, letter: char) {
        app.key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::NONE));
    }

    fn app() -> App {
        let mut app = App::new("http://a:8081".to_owned(), String::new());
        app.looked(Ok(look(0, 10)));
        app.looked(Ok(look(2, 30)));
        app
    }

    #[test]
    fn a_terminal_shows_all_of_it() {
        let mut app = app();
        let lines = shown(&mut app, 110, 12);
        let expected = [
            "paddler http://a:8081  live",
            "serving 1/2   here 5   waiting 1/30   answered 10.0/s   refused 0.0/s",
            "refused so far: model_not_found 2",
            "UPSTREAM               STATE      OPEN/LIMIT  RUNNING  WAITING    KV   REPORT WHY",
            "gpu-1                  healthy           3/4        3        0   26%     0.3s",
            "gpu-2                  unable            0/-        -        -     -        - 3 polls failed: \u{fffd}[31mred",
        ];
        assert_eq!(lines[..6], expected);
        assert_eq!(lines[10], "gpu-1 http://10.0.0.1:8080");
        assert_eq!(lines[11], "j/k move   d drain or undrain   / filter   q quit");
        press(&mut app, 'j');
        press(&mut app, 'd');
        let lines = shown(&mut app, 110, 12);
        assert!(
            lines[10].starts_with("gpu-2 http://10.0.0.2:8080  3 polls failed"),
            "{lines:#?}"
        );
        assert!(
            lines[11].starts_with("Drain gpu-2? It gets nothing new"),
            "{lines:#?}"
        );
        press(&mut app, 'n');
        "/u-1".chars().for_each(|letter| press(&mut app, letter));
        let lines = shown(&mut app, 110, 12);
        assert!(
            lines[5].is_empty() && lines[11].starts_with("/u-1_"),
            "{lines:#?}"
        );
        app.looked(Err("nobody answers".to_owned()));
        assert_eq!(
            shown(&mut app, 110, 12)[0],
            "paddler http://a:8081  nobody answers"
        );
    }

    #[test]
    fn the_chosen_row_is_always_shown() {
        let mut many = look(0, 1);
        let row = many.upstreams[0].clone();
        many.upstreams = (0..10_000)
            .map(|number| Row {
                id: format!("gpu-{number:05}"),
                ..row.clone()
            })
            .collect();
        let mut app = App::new("http://a".to_owned(), String::new());
        app.looked(Ok(many));
        let first = |lines: &[String]| lines[4].split_whitespace().next().unwrap().to_owned();
        assert_eq!(first(&shown(&mut app, 100, 16)), "gpu-00000");
        press(&mut app, 'G');
        let lines = shown(&mut app, 100, 16);
        assert_eq!(
            (first(&lines).as_str(), lines[13].starts_with("gpu-09999")),
            ("gpu-09990", true),
            "{lines:#?}"
        );
        press(&mut app, 'k');
        assert_eq!(
            first(&shown(&mut app, 100, 16)),
            "gpu-09990",
            "it does not move where it need not"
        );
        app.filter = "gpu-00003".to_owned();
        assert_eq!(first(&shown(&mut app, 100, 16)), "gpu-00003");
    }

    #[test]
    fn a_small_terminal_shows_what_it_can() {
        for (width, height) in [(1, 1), (10, 3), (20, 5), (40, 8)] {
            shown(&mut app(), width, height);
        }
    }
}
