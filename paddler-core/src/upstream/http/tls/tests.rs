//! What if files cannot be read just now?

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::time::Duration;

use super::*;
use roots::Found;
use roots::tests::roots as some_roots;
use tokio::time::advance;

thread_local! {
    /// The file for which there is no descriptor.
    static SHORT_OF: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
    /// How often this machine's roots were read.
    static FOUND: Cell<usize> = const { Cell::new(0) };
}

fn short_of(file: Option<&Path>) {
    SHORT_OF.set(file.map(Path::to_owned));
}

fn open(file: &Path) -> io::Result<File> {
    if SHORT_OF.with_borrow(|short| short.as_deref() == Some(file)) {
        // Too many open files.
        return Err(io::Error::from_raw_os_error(24));
    }
    File::open(file)
}

fn whole() -> Found {
    thread_local!(static ROOTS: RootCertStore = some_roots(&["a", "b"]));
    FOUND.set(FOUND.get() + 1);
    let roots = ROOTS.with(Clone::clone);
    Found {
        roots,
        failed: vec![],
    }
}

fn client(tls: &Tls, disk: Disk) -> TlsClient {
    let id = UpstreamId::new("a").unwrap();
    let client = TlsClient::new(&id, "localhost", tls, Offer::Http1).unwrap();
    TlsClient { disk, ..client }
}

/// A disk with these roots of the machine, which nobody else shares.
fn disk(roots: fn() -> Found) -> Disk {
    let shared = Box::leak(Box::new(roots::Shared::new()));
    Disk { open, roots, shared }
}

/// A certificate that is its own CA, and its key, in files.
fn files(name: &str) -> Tls {
    let folder = std::env::temp_dir().join(format!("paddler-tls-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let file = |name: &str, text: String| {
        let file = folder.join(name);
        fs::write(&file, text).unwrap();
        Some(file)
    };
    Tls {
        ca: file("ca.pem", made.cert.pem()),
        certificate: file("certificate.pem", made.cert.pem()),
        key: file("key.pem", made.signing_key.serialize_pem()),
        ..Tls::default()
    }
}

#[test]
fn upstreams_without_a_ca_have_the_same_roots() {
    let (tls, disk) = (Tls::default(), disk(whole));
    let [one, other] = [(); 2].map(|()| roots(&tls, &disk).unwrap());
    assert!(Arc::ptr_eq(&one.store, &other.store));
    assert_eq!(FOUND.get(), 1);
}

#[cfg(unix)]
#[tokio::test]
async fn that_no_file_can_be_opened_is_held_against_no_upstream() {
    let tls = files("short");
    let client = Arc::new(client(&tls, disk(whole)));
    for file in [&tls.ca, &tls.certificate, &tls.key] {
        short_of(file.as_deref());
        let error = client.config().unwrap_err();
        assert!(OutOfFiles::is(&error), "{error}");
    }
    short_of(None);
    fs::remove_file(tls.ca.as_deref().unwrap()).unwrap();
    let error = client.config().unwrap_err();
    assert!(!OutOfFiles::is(&error), "that it is not there is no want of ours");

    // As a connection has it.
    let none = |_: &Path| Err(io::Error::from_raw_os_error(23));
    let client = Arc::new(self::client(
        &tls,
        Disk {
            open: none,
            ..client.disk
        },
    ));
    let (io, _far) = tokio::io::duplex(64);
    let connected = client.connect(Box::new(io), Offer::Http1).await;
    let error = connected.map(drop).unwrap_err();
    assert!(OutOfFiles::is(&error), "{error}");
    fs::remove_dir_all(tls.key.unwrap().parent().unwrap()).unwrap();
}

#[cfg(unix)]
#[test]
fn a_new_certificate_that_could_not_be_opened_is_read_later() {
    let tls = files("renewed");
    let client = client(&tls, disk(whole));
    let first = client.config().unwrap();
    let ca = tls.ca.as_deref().unwrap();
    let longer = format!("{}\n\n", fs::read_to_string(ca).unwrap());
    fs::write(ca, longer).unwrap();
    short_of(Some(ca));
    assert!(
        Arc::ptr_eq(&client.config().unwrap(), &first),
        "it stays in force"
    );
    short_of(None);
    let second = client.config().unwrap();
    assert!(!Arc::ptr_eq(&second, &first), "and makes way");
    assert!(Arc::ptr_eq(&client.config().unwrap(), &second));
    fs::remove_dir_all(ca.parent().unwrap()).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_part_of_the_roots_is_kept_by_no_upstream() {
    let part = || Found {
        failed: match FOUND.get() {
            0 => vec![io::Error::from(io::ErrorKind::Other)],
            _ => vec![],
        },
        ..whole()
    };
    let client = client(&Tls::default(), disk(part));
    let [first, second] = [(); 2].map(|()| client.config().unwrap());
    assert!(!Arc::ptr_eq(&first, &second) && FOUND.get() == 1);
    advance(Duration::from_secs(60)).await;
    let [third, fourth] = [(); 2].map(|()| client.config().unwrap());
    assert!(!Arc::ptr_eq(&second, &third) && Arc::ptr_eq(&third, &fourth));
    assert_eq!(FOUND.get(), 2);
}
