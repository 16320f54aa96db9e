package views

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestCSVHasARowPerUpdateAndAColumnPerMetric(t *testing.T) {
	seed := int64(3)
	raw := func(rows ...string) (all []json.RawMessage) {
		for _, r := range rows {
			all = append(all, json.RawMessage(r))
		}
		return all
	}
	var b bytes.Buffer
	err := WriteCSV(&b, []Exported{
		{Address: `stage.grpo.arm["a, b"]@3`, Seed: &seed, Rows: raw(`{"update":1,"values":{"kl":0.1,"loss":1e-5}}`,
			`{"update":2,"values":{"loss":0.25}}`),
			Times: raw(`{"update":1,"values":{"seconds":2}}`, `{"update":2,"values":{"seconds":3}}`)},
		{Address: "stage.eval.x", Rows: raw(
			`{"task":"say \"hi\"","greedy":true,"calls":["a"],"state":{"n":-1},"name":"=1+1","failure":null}`)},
	})
	want := `address,seed,update,kl,loss,seconds,task,greedy,state.n,name
"stage.grpo.arm[""a, b""]@3",3,1,0.1,1e-5,2,,,,
"stage.grpo.arm[""a, b""]@3",3,2,,0.25,3,,,,
stage.eval.x,,,,,,"say ""hi""",true,-1,'=1+1
`
	if err != nil || b.String() != want {
		t.Errorf("got %v\n%s\nwant\n%s", err, b.String(), want)
	}
	if err := WriteCSV(&b, []Exported{{Rows: raw(`[1,2]`)}}); err == nil {
		t.Error("a row that is no object: got no error")
	}
}
