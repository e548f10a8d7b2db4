package store

// FullOrigin is an Origin with all optional parts, as memstore and redisorigin have them.
//
// The optional parts of an origin are found by type assertion, so a wrapper that embeds Origin hides them: the limiter
// then works as if the origin had none of them. Wrap a FullOrigin, and forward all of it.
type FullOrigin interface {
	Origin
	Granter
	Mailbox
	Relayed
}
