//! The socket and the protocol on it: plain HTTP, or TLS when the configuration has a certificate.
//!
//! Invariants
//! - The address is bound before anything slow happens, so that a port in use is told at once.
//! - A client that opens a connection and says nothing is dropped: handshake, first request and
//!   every request head have a deadline.
//!
//! Deliberately not here: who may connect (`Settings::check_exposure`), and anything about a request.

use crate::config::{Exposure, Settings, Tls};
use crate::failure::{Failure, Kind};
use axum::Router;
use axum_server::Handle;
use axum_server::accept::NoDelayAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// TLS handshake, and the head of a request.
const HEAD: Duration = Duration::from_secs(10);

/// A bound socket, not yet accepting.
pub(crate) struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<RustlsConfig>,
}

/// Ends a served [`Listener`].
pub(crate) type Stop = Handle<SocketAddr>;

impl Listener {
    /// Binds, and reads certificate and key.
    ///
    /// # Errors
    /// The port is in use, the address cannot be bound, or the PEM files cannot be used.
    pub(crate) async fn bind(settings: &Settings) -> Result<Self, Failure> {
        settings
            .check_exposure()
            .map_err(|refusal| Failure::new(Kind::Configuration, refusal))?;
        let socket =
            TcpListener::bind(settings.listen).map_err(|error| refused(settings.listen, &error))?;
        let address = socket
            .local_addr()
            .map_err(|error| refused(settings.listen, &error))?;
        let tls = match &settings.exposure {
            Exposure::Tls(files) => Some(read(files).await?),
            Exposure::Loopback | Exposure::BehindProxy => None,
        };
        Ok(Self {
            socket,
            address,
            tls,
        })
    }

    /// Where it listens; the port is the real one, also when 0 was asked for.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Base URL for a client on this machine.
    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut address = self.address;
        if address.ip().is_unspecified() {
            let loopback = if address.is_ipv4() {
                [127, 0, 0, 1].into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            };
            address.set_ip(loopback);
        }
        format!("{scheme}://{address}")
    }

    /// Serves until `stop` ends it.
    ///
    /// # Errors
    /// The socket fails as a whole; single connections never end it.
    pub(crate) async fn serve(self, router: Router, stop: Stop) -> std::io::Result<()> {
        let service = router.into_make_service();
        let mut server = axum_server::from_tcp(self.socket)?
            .handle(stop)
            .first_request_timeout(HEAD);
        // Without a timer hyper has no deadline for request heads.
        server
            .http_builder()
            .http1()
            .timer(hyper_util::rt::TokioTimer::new())
            .header_read_timeout(HEAD);
        match self.tls {
            None => server.acceptor(NoDelayAcceptor::new()).serve(service).await,
            Some(tls) => {
                let acceptor = RustlsAcceptor::new(tls)
                    .handshake_timeout(HEAD)
                    .acceptor(NoDelayAcceptor::new());
                server.acceptor(acceptor).serve(service).await
            }
        }
    }
}

async fn read(files: &Tls) -> Result<RustlsConfig, Failure> {
    RustlsConfig::from_pem_file(&files.cert, &files.key).await.map_err(|error| {
        Failure::new(
            Kind::Configuration,
            format_args!(
                "the certificate {} and its key {} cannot be used: {error}\n    remedy: give a PEM chain and the PEM key that belongs to it",
                files.cert.display(),
                files.key.display()
            ),
        )
    })
}

fn refused(address: SocketAddr, error: &std::io::Error) -> Failure {
    let remedy = match error.kind() {
        ErrorKind::AddrInUse => "stop the program that uses it, or give another one with --listen",
        ErrorKind::PermissionDenied => {
            "ports below 1024 need a privilege; give another one with --listen"
        }
        _ => "give an address of this machine with --listen",
    };
    let what = if error.kind() == ErrorKind::AddrInUse {
        "the port is in use".to_owned()
    } else {
        error.to_string()
    };
    Failure::new(
        Kind::Address,
        format_args!("cannot listen on {address}: {what}\n    remedy: {remedy}"),
    )
}
