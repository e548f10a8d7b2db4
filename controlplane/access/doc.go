// Package access holds who may operate the control plane: tokens with a [Role], made and revoked with an audit row, and
// whose approvals still count.
package access
