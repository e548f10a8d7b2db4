package tuning

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestPresetsAreValidAndSurviveARoundTrip(t *testing.T) {
	for _, name := range []string{"default", "rfc"} {
		want, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := want.Document()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Parse(doc); err != nil || got != want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := Preset("x"); !errors.Is(err, ErrInvalid) {
		t.Errorf("unknown preset: %v", err)
	}
}

func TestDefaultsAreTheDocumentedOnes(t *testing.T) {
	const want = `{"floor":0.1,"step":0.01,"feed_interval_ms":200,"settings_interval_ms":5000,"jitter":0.2,` +
		`"min_global_duration_ms":2000,"replay_tick_ms":100,"fresh_for_ms":5000,"strict_for_ms":0}`
	got, err := Default().Document()
	if err != nil || string(got) != want {
		t.Errorf("%s %v", got, err)
	}
	const wantRFC = `{"floor":0.5,"step":0,"feed_interval_ms":10000,"settings_interval_ms":10000,"jitter":0.2,` +
		`"min_global_duration_ms":60000,"replay_tick_ms":100,"fresh_for_ms":5000,"strict_for_ms":0}`
	if got, err := RFC().Document(); err != nil || string(got) != wantRFC {
		t.Errorf("rfc: %s %v", got, err)
	}
}

// A stored document may be of an older build: fields that it lacks keep their defaults.
func TestLeftOutFieldsOfStoredDocumentsKeepTheirDefaults(t *testing.T) {
	got, err := Read([]byte(`{"floor":0.4}`))
	want := Default()
	want.Floor = 0.4
	if err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
}

// "The document must hold every field once": an operator who writes a single field does not set back the rest.
func TestParseRefusesADocumentThatIsNotWhole(t *testing.T) {
	whole, err := Default().Document()
	if err != nil {
		t.Fatal(err)
	}
	for doc, want := range map[string]string{
		`{"floor":0.3}`: "lacks step, feed_interval_ms, settings_interval_ms, jitter, min_global_duration_ms, replay_tick_ms, fresh_for_ms, strict_for_ms:",
		`{}`:            "lacks floor, step",
		`null`:          "lacks floor, step",
		strings.Replace(string(whole), `"jitter":0.2`, `"jitter":null`, 1): "lacks jitter:",
		strings.Replace(string(whole), `"jitter":0.2,`, ``, 1):             "lacks jitter:",
		strings.Replace(string(whole), `"floor"`, `"Floor"`, 1):            `there is no field "Floor"`,
		strings.Replace(string(whole), `{`, `{"step":0.5,`, 1):             `"step" appears twice`,
	} {
		if _, err := Parse([]byte(doc)); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", doc, err, want)
		}
	}
}

func TestParseNamesFieldAndBound(t *testing.T) {
	for doc, want := range map[string][]string{
		`{"floor":1.1}`:                             {"floor is 1.1", "0 to 1"},
		`{"floor":-0.1,"step":2}`:                   {"floor is -0.1", "step is 2"},
		`{"jitter":0.6}`:                            {"jitter", "0.5"},
		`{"feed_interval_ms":49}`:                   {"feed_interval_ms is 49", "50 to 60000"},
		`{"feed_interval_ms":60001}`:                {"feed_interval_ms is 60001", "50 to 60000"},
		`{"settings_interval_ms":99}`:               {"settings_interval_ms is 99", "100 to 600000"},
		`{"settings_interval_ms":600001}`:           {"settings_interval_ms is 600001", "100 to 600000"},
		`{"replay_tick_ms":9}`:                      {"replay_tick_ms", "10 to 10000"},
		`{"fresh_for_ms":1}`:                        {"fresh_for_ms"},
		`{"strict_for_ms":-1}`:                      {"strict_for_ms is -1", "0 to 86400000"},
		`{"min_global_duration_ms":999}`:            {"min_global_duration_ms is 999", "1000 to 86400000"},
		`{"min_global_duration_ms":86400001}`:       {"min_global_duration_ms is 86400001", "1000 to 86400000"},
		`{"replay_tick_ms":"1s"}`:                   {"whole number of milliseconds"},
		`{"replay_tick_ms":1.5}`:                    {"whole number of milliseconds"},
		`{"settings_interval_ms":9e18}`:             {"milliseconds"},
		`{"settings_interval_ms":9000000000000000}`: {"out of range"},
		`{"flor":0.1}`:                              {`unknown field "flor"`},
		`{} {}`:                                     {"after the document's end"},
		``:                                          {"EOF"},
		`[]`:                                        {"array"},
		`{"floor":` + strings.Repeat(" ", DocumentBytesMax) + `1}`: {"bytes long"},
	} {
		_, err := Parse([]byte(doc))
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%.60s: %v", doc, err)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%.60s: error %q does not say %q", doc, err, w)
			}
		}
	}
}

// Every field must be bounded: a document of absurd values names each of them.
func TestEveryFieldIsBounded(t *testing.T) {
	absurd := Tuning{Floor: 9, Step: 9, FeedInterval: -1, SettingsInterval: 1 << 62, Jitter: 9,
		MinGlobalDuration: -1, ReplayTick: -1, FreshFor: -1, StrictFor: -1}
	err := absurd.Validate()
	for i := range reflect.TypeFor[Tuning]().NumField() {
		name := reflect.TypeFor[Tuning]().Field(i).Tag.Get("json")
		if !strings.Contains(err.Error(), name+" is") {
			t.Errorf("field %s has no bound", name)
		}
	}
	if _, err := absurd.Document(); err == nil {
		t.Error("an invalid document can be written")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{}`, `{"floor":0.5}`, `{"settings_interval_ms":1e3}`, `{"floor":null}`, `null`, `{"jitter":1e999}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		got, err := Parse(doc)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		out, err := got.Document()
		if err != nil || !json.Valid(out) {
			t.Fatalf("accepted but cannot be written: %v", err)
		}
		if again, err := Parse(out); err != nil || again != got {
			t.Fatalf("changes in a round trip: %+v to %+v, %v", got, again, err)
		}
	})
}
