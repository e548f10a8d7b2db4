package workload

import (
	"errors"
	"fmt"
	"strings"
)

// Check returns an error unless a limiter does the work for which it is compared: an identifier gets its limit and no
// more, and takes nothing from any other.
func Check(l Limiter) error {
	var errs []error
	for _, limit := range []int64{1, 3} {
		errs = append(errs, checkLimit(l, limit))
	}
	return errors.Join(append(errs, checkNever(l))...)
}

func checkLimit(l Limiter, limit int64) error {
	decide, stop := l.New(limit)
	defer stop()
	want := strings.Repeat("+", int(limit)) + "--"
	if l.Floor {
		want = strings.Repeat("+", int(limit)+2)
	}
	for i := range 2 {
		var got strings.Builder
		for range want {
			got.WriteString(map[bool]string{true: "+", false: "-"}[decide(Identifier(i))])
		}
		if got.String() != want {
			return fmt.Errorf("%s with a limit of %d answers identifier %d with %s, not %s", l.Name, limit, i,
				got.String(), want)
		}
	}
	return nil
}

func checkNever(l Limiter) error {
	decide, stop := l.New(Never)
	defer stop()
	for i := range 10_000 {
		if !decide(Identifier(0)) {
			return fmt.Errorf("%s with a limit of %d denies decision %d", l.Name, int64(Never), i)
		}
	}
	return nil
}
