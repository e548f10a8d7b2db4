// Package access controls who may operate the control plane. It creates and revokes tokens with a [Role], each with an
// audit entry, and reports whose approvals still count.
package access
