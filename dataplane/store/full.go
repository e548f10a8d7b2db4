package store

// FullOrigin is an Origin with all optional parts, such as memstore's and redisorigin's.
//
// The optional parts of an origin are found by type assertion, so a wrapper that embeds Origin hides them: the
// limiter then works as if the origin had none of them. A wrapper should therefore embed a FullOrigin, and forward
// all its methods.
type FullOrigin interface {
	Origin
	Granter
	Mailbox
	Relayed
}
