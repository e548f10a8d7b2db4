package rollout

const clockJumped = "the clock of the database has jumped: the wait for each node's heartbeat starts again"

// held reports whether the rollout waits for nodes that only look silent because a clock jumped.
func (r *transition) held() bool {
	switch unsure := r.Clocks.Unsure(r.look, r.nowMs); {
	case unsure:
		r.Waiting = clockJumped
		return true
	case r.Waiting == clockJumped:
		r.Waiting = ""
	}
	return false
}
