//! How is the terminal kept up to date?

use std::io::{self, IsTerminal as _};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::app::{Act, App};
use super::ask::Management;
use super::draw::draw;
use super::look::Look;
use crate::Failure;

/// How often is looked.
const EVERY: Duration = Duration::from_secs(2);

/// A look takes this part of the time at most: one at thousands of upstreams takes a while.
const SHARE: u32 = 5;

/// What comes to the one who draws.
enum News {
    Looked(Result<Look, String>),
    Drained(Result<String, String>),
    Terminal(Event),
}

/// Shows it until somebody leaves.
pub(super) async fn show(management: Management, filter: String) -> Result<(), Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err("this is no terminal: say --once to print a table".into());
    }
    let app = App::new(management.url.clone(), filter);
    // It is as it was before, also after a panic.
    let mut terminal = ratatui::try_init()?;
    let ended = run(&mut terminal, app, management).await;
    ratatui::try_restore()?;
    ended
}

async fn run(terminal: &mut DefaultTerminal, mut app: App, management: Management) -> Result<(), Failure> {
    let (tell, mut news) = mpsc::channel(16);
    let keys = tell.clone();
    // It waits for keys, and ends with the program.
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if keys.blocking_send(News::Terminal(event)).is_err() {
                return;
            }
        }
    });
    let soon = tell.clone();
    let (now, at_once) = mpsc::channel(1);
    tokio::spawn(keep_looking(management.clone(), soon, at_once));
    loop {
        terminal.draw(|frame| draw(frame, &mut app))?;
        let Some(next) = news.recv().await else {
            return Ok(());
        };
        match next {
            News::Looked(look) => app.looked(look),
            News::Drained(done) => {
                app.message = Some(done.unwrap_or_else(|why| why));
                // If it is full, a look is about to come.
                now.try_send(()).ok();
            }
            News::Terminal(Event::Key(key)) if key.kind != KeyEventKind::Release => match app.key(key) {
                Act::Nothing => {}
                Act::Leave => return Ok(()),
                Act::Drain { id, draining } => {
                    tokio::spawn(drain(management.clone(), id, draining, tell.clone()));
                }
            },
            // The window has another size: it is drawn again.
            News::Terminal(_) => {}
        }
    }
}

async fn keep_looking(management: Management, tell: mpsc::Sender<News>, mut at_once: mpsc::Receiver<()>) {
    loop {
        let began = management.clock.now();
        let look = management.look().await.map_err(|why| why.to_string());
        if tell.send(News::Looked(look)).await.is_err() {
            return;
        }
        let rest = EVERY.max(management.clock.now().since(began) * SHARE);
        tokio::select! {
            () = sleep(rest) => {}
            told = at_once.recv() => if told.is_none() {
                return;
            },
        }
    }
}

async fn drain(management: Management, id: String, draining: bool, tell: mpsc::Sender<News>) {
    let done = match management.drain(&id, draining).await {
        Ok(()) if draining => Ok(format!("{id} is drained")),
        Ok(()) => Ok(format!("{id} is back in")),
        Err(why) => Err(why.to_string()),
    };
    // Whoever has left needs no answer.
    tell.send(News::Drained(done)).await.ok();
}
