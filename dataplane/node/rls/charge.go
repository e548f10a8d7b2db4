package rls

import "context"

// A charged rule is for what is known only after a request: its cost is counted whatever the limit says, and denies
// nothing. Hits of 0, which come before, deny their call when there is nothing left.

func (i *item) charges() bool { return i.limited() && i.limit.Charged && !i.check && !i.refund }

// decideCharged charges, and says whether a check denies the call.
func (s *Service) decideCharged(ctx context.Context, items []item) (usedUp bool, err error) {
	for i := range items {
		switch it := &items[i]; {
		case it.charges():
			if err := s.charge(ctx, it); err != nil {
				return false, err
			}
		case it.check:
			it.request.Cost = 1
			it.look(s.Limiter.Peek(ctx, it.request))
			usedUp = usedUp || it.over && !it.limit.Shadow
		}
	}
	return usedUp, nil
}

// charge counts an item's cost. It is over if that has passed the limit.
func (s *Service) charge(ctx context.Context, it *item) error {
	if _, err := s.Limiter.Charge(it.request); err != nil {
		return err
	}
	standing := it.request
	standing.Cost, standing.ZeroCost = 0, true
	it.decision = s.Limiter.Peek(ctx, standing)
	it.over = !it.decision.Allowed
	return it.decision.Err
}
