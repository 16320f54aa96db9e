experiment "ablation" { # ERROR: Wrong labels ; experiment { … }
}
