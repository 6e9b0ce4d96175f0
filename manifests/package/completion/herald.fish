function __herald_complete
    set -lx COMP_LINE (commandline -cp)
    herald
end
complete -c herald -f -a '(__herald_complete)'
complete -c herald -n 'test -z "$(__herald_complete)"' -F
