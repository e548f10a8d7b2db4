package rls

import "context"

// A charged rule is for a cost that is known only after a request, for example the tokens of an answer. Its cost is
// counted even above the limit, and denies nothing. Hits of 0, which come before the request, deny their call if
// nothing is left.

func (i *item) charges() bool { return i.limited() && i.limit.Charged && !i.check && !i.refund }

// decideCharged counts the charges, and reports whether a check denies the call.
func (s *Service) decideCharged(ctx context.Context, items []item) (usedUp bool, err error) {
	if !some(items, func(it *item) bool { return it.check || it.charges() }) {
		return false, nil
	}
	s.chargeTogether(ctx, items)
	for i := range items {
		usedUp = usedUp || items[i].check && items[i].over && !items[i].limit.Shadow
	}
	return usedUp, firstError(items)
}

func (s *Service) chargeTogether(ctx context.Context, items []item) {
	together(items, func(it *item) {
		switch {
		case it.charges():
			it.decision.Err = s.charge(ctx, it)
		case it.check:
			it.request.Cost = 1
			it.look(s.Limiter.Peek(ctx, it.request))
		}
	})
}

// charge counts an item's cost. The item is over if the count has passed the limit.
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
