package tuning

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Edit returns t with fields changed, each given as field=value with the value as in a document: for example,
// "replay_tick_ms=200". An unknown field, a field that is given twice, and a value that is no number or outside its
// bounds are errors.
func Edit(t Tuning, changes []string) (Tuning, error) {
	values, err := valuesOf(t)
	if err != nil {
		return Tuning{}, err
	}
	var given []string
	for _, change := range changes {
		field, value, isPair := strings.Cut(change, "=")
		field, value = strings.TrimSpace(field), strings.TrimSpace(value)
		switch {
		case !isPair:
			return Tuning{}, fmt.Errorf("%w: %.80q is not FIELD=VALUE", ErrInvalid, change)
		case !slices.Contains(Fields(), field):
			return Tuning{}, fmt.Errorf("%w: there is no field %.64q (fields: %s)", ErrInvalid, field,
				strings.Join(Fields(), ", "))
		case slices.Contains(given, field):
			return Tuning{}, fmt.Errorf("%w: %s is given twice", ErrInvalid, field)
		}
		var number json.Number
		if err := json.Unmarshal([]byte(value), &number); err != nil || strings.HasPrefix(value, `"`) || number == "" {
			return Tuning{}, fmt.Errorf("%w: %s is %.64q, want a number", ErrInvalid, field, value)
		}
		given, values[field] = append(given, field), json.RawMessage(value)
	}
	text, err := json.Marshal(values)
	if err != nil {
		return Tuning{}, fmt.Errorf("%w: %v", ErrInvalid, err) //nolint:errorlint // see Parse
	}
	return Parse(text)
}

// Change is a field in which two tunings differ, with the values as documents have them.
type Change struct{ Field, From, To string }

// Diff returns the fields in which two tunings differ, in the order of Fields. Both must be valid.
func Diff(from, to Tuning) ([]Change, error) {
	before, err := valuesOf(from)
	if err != nil {
		return nil, err
	}
	after, err := valuesOf(to)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for _, f := range Fields() {
		if string(before[f]) != string(after[f]) {
			changes = append(changes, Change{f, string(before[f]), string(after[f])})
		}
	}
	return changes, nil
}

func valuesOf(t Tuning) (values map[string]json.RawMessage, err error) {
	text, err := t.Document()
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrInvalid, err) //nolint:errorlint // see Parse
	}
	delete(values, "requires") // Document writes it again
	return values, nil
}
