// Package httplimit limits HTTP: [Middleware] the requests that a server takes, and [Transport] the
// requests that a client makes.
//
// A denied request is answered 429 with a Retry-After that, obeyed, is admitted if nobody else
// comes, and with the RateLimit and RateLimit-Policy fields of
// draft-ietf-httpapi-ratelimit-headers-11.
//
// A limiter that cannot be asked, because Redis does not answer or the client is closed, is a third
// outcome, never mixed up with a denial. By default requests pass then, without a permit, and OnError
// is told: an outage of the limiter should not become one of what it protects. Where too many
// requests are worse than none, set FailClosed; or let the limiter itself decide, with
// limiter.WithFailurePolicy(limiter.FailLocal), which keeps to this process's share of the limits.
// Every other failure, such as a key over 65 536 bytes or too many waits, lets nothing pass.
package httplimit
