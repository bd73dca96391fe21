// Package httplimit limits HTTP: [Middleware] the requests that a server takes, and [Transport] the
// requests that a client makes.
//
// A denied request is answered 429 with a Retry-After that, obeyed, is admitted if nobody else
// comes, and with the RateLimit and RateLimit-Policy fields of
// draft-ietf-httpapi-ratelimit-headers-11.
//
// A backend that cannot answer is a third outcome, never mixed up with a denial: see
// [Options.FailOpen] and [Transport.FailOpen].
package httplimit
