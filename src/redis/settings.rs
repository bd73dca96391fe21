//! From a URL and a client's settings to those of the link.
use std::time::Duration;

use super::driver;
use super::link::{Credentials, Endpoint, Settings, Trust};
use crate::config::Config;

/// The settings of the link that a URL and a configuration ask for, if such a link can work and this
/// backend can do what else they ask for. The message never repeats the URL.
pub fn settings(url: &str, config: &Config) -> Result<Settings, String> {
    let mut endpoint = Endpoint::parse(url)?;
    let login = &mut endpoint.credentials;
    login.username = config.username.clone().or(login.username.take());
    login.password = config.password.clone().or(login.password.take());
    let mut settings = Settings::new(endpoint);
    settings.sentinel_credentials = Credentials {
        username: config.sentinel_username.clone(),
        password: config.sentinel_password.clone(),
    };
    settings.trust = Trust {
        ca_file: config.tls_ca_file.clone(),
        insecure: config.tls_insecure,
    };
    settings.attempt = Duration::from_micros(config.command_timeout.0);
    settings.log = config.log.clone();
    if settings.endpoint.tls {
        driver::check(&settings)?;
    }
    Ok(settings)
}
