# deploy
