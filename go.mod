module rcgrpo

go 1.26

require (
	github.com/go-echarts/go-echarts/v2 v2.6.7
	github.com/hashicorp/hcl/v2 v2.25.0
	github.com/olekukonko/tablewriter v1.1.5
	github.com/rogpeppe/go-internal v1.16.0
	github.com/sugarme/gotch v0.9.1
	github.com/zclconf/go-cty v1.19.0
	golang.org/x/sys v0.49.0
	golang.org/x/term v0.47.0
)
