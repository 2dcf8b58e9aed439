from uniq_rl.cli import main

main()
