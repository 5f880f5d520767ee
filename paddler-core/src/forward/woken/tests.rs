use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake as _, Waker};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::bell::Bell;
use super::*;

#[tokio::test(start_paused = true)]
async fn who_is_seldom_heard_of_is_asked_once_and_when_he_is_woken() {
    let (say, mut said) = mpsc::channel::<u8>(1);
    let (stop, stopped) = oneshot::channel::<()>();
    let (asked, mut stopped) = (AtomicUsize::new(0), pin!(stopped));
    let (mut sum, woken) = (0, &mut Woken::new());
    let listening = async {
        let stop = poll_fn(|cx| {
            while let Poll::Ready(Some(heard)) = said.poll_recv(cx) {
                sum += u32::from(heard);
            }
            woken.poll(cx, |cx| {
                asked.fetch_add(1, Ordering::Relaxed);
                stopped.as_mut().poll(cx)
            })
        });
        stop.await.unwrap();
    };
    let speaking = async {
        for _ in 0..100 {
            say.send(1).await.unwrap();
            sleep(Duration::from_millis(1)).await;
        }
        stop.send(()).unwrap();
    };
    tokio::join!(listening, speaking);
    assert_eq!(sum, 100);
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn another_task_that_waits_is_the_one_that_is_woken() {
    let (tell, told) = oneshot::channel::<()>();
    let mut both = (Woken::new(), Box::pin(told));
    let waiting = poll_fn(|cx| {
        let (woken, told) = &mut both;
        woken.poll(cx, |cx| told.as_mut().poll(cx))
    });
    assert!(timeout(Duration::from_millis(1), waiting).await.is_err());
    let (mut woken, mut told) = both;
    let waiting = tokio::spawn(poll_fn(move |cx| woken.poll(cx, |cx| told.as_mut().poll(cx))));
    tokio::task::yield_now().await;
    tell.send(()).unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_ready_is_polled_each_time() {
    let task = Waker::from(Arc::<Bell>::default());
    let (cx, mut woken) = (&Context::from_waker(&task), Woken::new());
    for _ in 0..3 {
        assert_eq!(woken.poll(cx, |_| Poll::Ready(7)), Poll::Ready(7));
    }
    assert_eq!(woken.poll(cx, |_| Poll::<u8>::Pending), Poll::Pending);
    assert_eq!(
        woken.poll(cx, |_| Poll::Ready(7)),
        Poll::Pending,
        "nobody was woken"
    );
    woken.bell.wake_by_ref();
    let woken_meanwhile = |cx: &mut Context<'_>| {
        cx.waker().wake_by_ref();
        Poll::<u8>::Pending
    };
    assert_eq!(woken.poll(cx, woken_meanwhile), Poll::Pending);
    assert_eq!(woken.poll(cx, |_| Poll::Ready(7)), Poll::Ready(7));
}

#[tokio::test(start_paused = true)]
async fn what_is_done_first_counts() {
    let (often, seldom) = (
        pin!(sleep(Duration::from_secs(1))),
        pin!(sleep(Duration::from_secs(2))),
    );
    assert_eq!(before(often, seldom).await, Some(()));
    let (often, seldom) = (
        pin!(sleep(Duration::from_secs(2))),
        pin!(sleep(Duration::from_secs(1))),
    );
    assert_eq!(before(often, seldom).await, None);
    let (often, seldom) = (pin!(std::future::ready(3)), pin!(std::future::ready(())));
    assert_eq!(before(often, seldom).await, Some(3), "both at once");
}
