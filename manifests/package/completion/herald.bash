complete -o default -o bashdefault -C herald herald
