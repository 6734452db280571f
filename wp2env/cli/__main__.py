from wp2env.cli import main

raise SystemExit(main())
